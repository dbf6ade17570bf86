"""Job of Slurm for one launch, which is one ``srun``."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from det_cluster.agent_group import AgentGroup
from det_cluster.engine_launch import EngineJob

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase, Status
from det_slurm._end_causes import STATES, explain_refusal, find_cause
from det_slurm._queue_reasons import QueueReasons
from det_slurm._slurm_programs import IN_ALLOCATION, cancel_jobs, read_ended_job
from det_slurm._srun_withdrawer import SrunWithdrawer

ARRIVED = "det-slurm-node"
"""Beginning of the line with which a node reports its job, its step, its index and its name."""
_WAITS = re.compile(r"srun: job (\d+) queued")
_STARTS = re.compile(r"srun: job \d+ has been allocated")
_WAITING = "waiting for resources"
_KEPT = 20
"""Number of lines of srun that are kept, in which it says why it ended."""
_LOST = (Cause.NODE_LOST, Cause.NOT_STARTED)


class SrunJob(EngineJob):
    """Job or step whose tasks are the nodes of a launch.

    Args:
        command: the command with ``srun``.
        nodes: number of nodes.
        name: name of the job.
        withdrawer: process that withdraws the job if this process is killed.
        reasons: reasons for which jobs wait.
    """

    def __init__(
        self, command: Sequence[str], nodes: int, *, name: str, withdrawer: SrunWithdrawer, reasons: QueueReasons
    ) -> None:
        self._command, self._nodes, self._name = command, nodes, name
        self._is_step = IN_ALLOCATION in os.environ
        self._withdrawer, self._reasons = withdrawer, reasons
        self._job = self._step = ""
        self._places: dict[int, str] = {}
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._is_marked = False
        self._srun: subprocess.Popen[bytes] | None = None

    def advance(self, request: LaunchRequest) -> AgentGroup:
        group = AgentGroup(
            request, [self._command], nodes=self._nodes, start_seconds=math.inf, take_line=self._take_line
        )
        (self._srun,) = group.processes
        try:
            self._withdrawer.add_process(self._srun.pid)
        except OSError as error:
            group.terminate()
            group.close()
            raise LaunchDelayed(f"cannot start the process that withdraws jobs of a killed runner: {error}") from error
        return group

    def status(self) -> Status:
        if self._places and self._srun:
            if not self._is_marked:
                self._is_marked = True
                self._withdrawer.mark_started(self._srun.pid)
                self._reasons.remove_job(self._job)
            nodes = [name for _, name in sorted(self._places.items())]
            return Status(phase=Phase.STARTING, nodes=nodes, handle=self._handle())
        said = "" if self._job else " ".join(list(self._said)[-1:])
        message = self._reasons.find_reason(self._job) or said or _WAITING
        return Status(phase=Phase.QUEUED, handle=self._handle(), message=message)

    def explain_end(self, end: Exit) -> Exit:
        """Ask Slurm why the launch ended, and cancel a job that a killed ``srun`` has left behind."""
        job: Mapping[str, str] = {}
        problem = ""
        if self._job:
            try:
                job = read_ended_job(self._job)
                if end.cause in _LOST and (self._is_step or job.get("JobState") not in STATES):
                    cancel_jobs(self._name, steps_of=self._job if self._is_step else None)
            except LaunchError as error:
                problem = str(error)
        cause, reason = find_cause(job, self._said)
        if cause and not (cause is Cause.CANCELED and self._is_srun_killed()):
            return replace(end, cause=cause, message="; ".join(filter(None, [self._handle(), reason, problem])))
        if end.cause is not Cause.NOT_STARTED:
            return end
        if refusal := explain_refusal(self._said):
            raise LaunchError(refusal)
        return replace(end, message=next((line for line in reversed(self._said) if "error" in line), end.message))

    def close(self) -> None:
        self._reasons.remove_job(self._job)
        if self._srun:
            self._withdrawer.remove_process(self._srun.pid)

    def _take_line(self, text: str) -> bool:
        if text.startswith(ARRIVED):
            _, self._job, self._step, index, self._places[int(index)] = text.split()
        elif waits := _WAITS.search(text):
            self._job = waits[1]
            self._reasons.add_job(self._job)
        elif not _STARTS.search(text):
            self._said.append(text)
            return False
        return True

    def _handle(self) -> str:
        step = f" step {self._step}" if self._is_step else ""
        return f"Slurm job {self._job}{step}" if self._job else ""

    def _is_srun_killed(self) -> bool:
        """Return whether a signal has ended ``srun``, whose job Slurm then cancels."""
        return self._srun is not None and (self._srun.poll() or 0) < 0
