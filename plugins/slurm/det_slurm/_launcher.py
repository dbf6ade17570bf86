"""Launcher that starts trials with ``srun``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from det_cluster.engine_launch import EngineLaunch

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_slurm._config import SlurmConfig
from det_slurm._queue_reasons import QueueReasons
from det_slurm._reserved_options import SRUN_VARIABLES
from det_slurm._slurm_programs import IN_ALLOCATION, cancel_jobs, explain_missing_program, run_program
from det_slurm._srun_job import ARRIVED, SrunJob
from det_slurm._srun_withdrawer import SrunWithdrawer

_AGENT = rf"""
echo "{ARRIVED} $SLURM_JOB_ID $SLURM_STEP_ID $SLURM_PROCID $SLURMD_NODENAME"
set -- --node "$SLURM_PROCID" --name "$SLURMD_NODENAME"
if [ "$SLURM_NNODES" -gt 1 ]; then
    case $(getent hosts "$(hostname)") in '' | 127.* | ::1\ *)
        for field in $(scontrol show node --oneliner "$SLURMD_NODENAME"); do
            case $field in NodeAddr=?*) set -- "$@" --host "${{field#NodeAddr=}}" ;; esac
        done ;;
    esac
fi
exec python3 -m det_cluster.agent_program "$@"
"""
"""Script of each node. A node whose host name does not lead to it from other nodes has the address that Slurm uses."""
_WITHOUT_GPUS = "export CUDA_VISIBLE_DEVICES="
"""Line of the script that hides GPUs that Slurm has not given to the trial."""
_AFTER_EARLIER_STEPS = """
while squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format=%j | grep -qx "$0"; do sleep 1; done
"""
"""Lines of the script that wait until steps of the same name are gone. Jobs have ``--dependency=singleton``."""
_START = 'exec "$@"'
"""Last line of the script."""
_NAME = "det-"
"""Beginning of the names of jobs, before the key of the launch."""
_SAVE_SECONDS = 60
"""Seconds before the time limit of a job at which its trial starts to save a checkpoint."""


class SlurmLauncher(Launcher):
    """Launcher whose trials are jobs of Slurm, or steps if this process is in an allocation."""

    slots = None  # Slurm queues what has no room

    def __init__(self, config: SlurmConfig) -> None:
        self._config = config
        self._in_allocation = IN_ALLOCATION in os.environ
        self._withdrawer = SrunWithdrawer()
        self._reasons = QueueReasons()

    def device(self) -> Literal["cpu", "cuda"]:
        return self._config.device()

    def rehearsal(self, slots: int) -> tuple[Launcher, int]:
        """Return a launch on two nodes, with the resources of one slot on each."""
        return SlurmLauncher(self._config.model_copy(update={"slots_per_node": 1})), 2

    def available_slots(self, request: LaunchRequest) -> int | None:
        """Return the number of slots of idle nodes, or None if there are none, because others may have room, too."""
        if self._in_allocation:
            return None
        partition = self._config.partition
        chosen = [f"--partition={partition}"] if partition else []
        rows = map(str.split, run_program("sinfo", "--noheader", "--format=%T %D %P", *chosen).splitlines())
        # Slurm marks the partition of jobs that choose none. Nodes that are idle and drained have another state.
        idle = sum(int(count) for state, count, name in rows if state == "idle" and (partition or name.endswith("*")))
        return idle * self._config.slots_per_node or None

    def open(self, key: str, keep: Collection[str] = (), renew_lease: Callable[[], None] = lambda: None) -> None:
        """Cancel what earlier runners have left. The host of one may be frozen, and then nobody else ends its jobs."""
        cancel_jobs(f"{_NAME}{key}", steps_of=os.environ.get(IN_ALLOCATION))

    def start(self, request: LaunchRequest) -> Allocation:
        if shutil.which("srun") is None:
            raise LaunchError(explain_missing_program("srun"))
        nodes = -(-request.slots // self._config.slots_per_node)
        if request.slots % nodes:
            raise LaunchError(
                f"the trial needs {request.slots} slots, which {nodes} nodes with up to {self._config.slots_per_node} "
                "slots cannot share equally; change resources.slots_per_trial or launcher.slots_per_node"
            )
        name = f"{_NAME}{request.key}"
        script = _AGENT if self.device() == "cuda" else f"{_WITHOUT_GPUS}{_AGENT}"
        command = [*self._srun(name, nodes, request.slots // nodes), "sh", "-c", script]
        waits = _AFTER_EARLIER_STEPS if self._in_allocation else "\n"
        command = ["sh", "-c", f"unset {' '.join(SRUN_VARIABLES)}{waits}{_START}", name, *command]
        job = SrunJob(command, nodes, name=name, withdrawer=self._withdrawer, reasons=self._reasons)
        return EngineLaunch(request, job)

    def _srun(self, name: str, nodes: int, slots: int) -> Sequence[str]:
        """Return the command without that of the nodes.

        Args:
            name: name of the job.
            nodes: number of nodes.
            slots: number of slots of each node.
        """
        place = ["--exact"] if self._in_allocation else ["--dependency=singleton", *self._config.job_options()]
        return [
            "srun",
            f"--job-name={name}",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            "--input=all",  # requests and orders reach all agents
            "--label",
            "--kill-on-bad-exit=0",  # agents end their workers themselves
            "--wait=0",
            "--mpi=none",
            "--chdir=/",  # the directory of this process need not exist there
            f"--signal=URG@{_SAVE_SECONDS}",
            *place,
            *self._config.run_options(slots),
        ]
