"""Launch of a trial with one ``srun``."""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

from det_cluster.agent_group import AgentGroup
from det_cluster.mounted_storage import explain_unmounted_storage

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase, Status
from det_slurm._end_causes import STATES, explain_refusal, find_cause
from det_slurm._queue_reasons import QueueReasons
from det_slurm._slurm_programs import IN_ALLOCATION, cancel_jobs, read_ended_job
from det_slurm._srun_withdrawer import SrunWithdrawer

ARRIVED = "det-slurm-node"
"""Beginning of the line with which a node reports its job, its step, its index and its name."""
MISSING = "det-slurm-missing"
"""Beginning of the line of a node that does not see the directory of the checkpoints."""
_WAITS = re.compile(r"srun: job (\d+) queued")
_STARTS = re.compile(r"srun: job \d+ has been allocated")
_WAITING = "waiting for resources"
_KEPT = 20
"""Number of lines of srun that are kept, in which it says why it ended."""
_SIGNALED = 128
"""Smallest exit code of a command below which a signal ended a process."""
_LOST = (Cause.NODE_LOST, Cause.NOT_STARTED)


class SrunGroup(AgentGroup):
    """Launch whose nodes are the tasks of one ``srun``.

    Args:
        request: the launch request.
        command: the command.
        nodes: number of nodes.
        name: name of the job.
        withdrawer: process that withdraws the job if this process is killed.
        reasons: reasons for which jobs wait.
        undo: actions for the end.
    """

    def __init__(
        self,
        request: LaunchRequest,
        command: Sequence[str],
        nodes: int,
        *,
        name: str,
        withdrawer: SrunWithdrawer,
        reasons: QueueReasons,
        undo: ExitStack,
    ) -> None:
        self._name = name
        self._is_step = IN_ALLOCATION in os.environ
        self._withdrawer, self._reasons, self._undo = withdrawer, reasons, undo.pop_all()
        self._job = self._step = self._missing = ""
        self._places: dict[int, str] = {}
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._stopped = self._marked = False
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="det-scontrol")
        self._inquiry: Future[Exit] | None = None
        super().__init__(request, [command], nodes=nodes, start_seconds=math.inf)
        try:
            self._withdrawer.add_process(self.processes[0].pid)
        except OSError as error:
            self.terminate()
            self.close()
            raise LaunchDelayed(f"cannot start the process that withdraws jobs of a killed runner: {error}") from error

    def receive_line(self, text: str) -> None:
        words = text.split()
        if text.startswith(ARRIVED):
            _, self._job, self._step, index, self._places[int(index)] = words
        elif text.startswith(MISSING):
            self._missing = words[1]
        elif waits := _WAITS.search(text):
            self._job = waits[1]
            self._reasons.add_job(self._job)
        elif not _STARTS.search(text):
            self._said.append(text)
            super().receive_line(text)

    def status(self) -> Status:
        if self._places:
            nodes = [name for _, name in sorted(self._places.items())]
            return replace(super().status(), nodes=nodes, handle=self._handle())
        said = "" if self._job else " ".join(list(self._said)[-1:])
        message = self._reasons.find_reason(self._job) or said or _WAITING
        return Status(phase=Phase.QUEUED, handle=self._handle(), message=message)

    def wait(self, timeout: float) -> Exit | None:
        if self._places and not self._marked:
            self._marked = True
            self._withdrawer.mark_started(self.processes[0].pid)
            self._reasons.remove_job(self._job)
        end = super().wait(timeout if self._inquiry is None else 0)
        if self._missing:
            raise LaunchError(explain_unmounted_storage(self._missing))
        if end is None or not self._is_unclear(end):
            return end
        if self._inquiry is None:
            self._inquiry = self._asking.submit(self._explain, end)
        try:
            explained = self._inquiry.result(timeout)
        except futures.TimeoutError:
            return None
        if explained.cause is Cause.NOT_STARTED and (refusal := explain_refusal(self._said)):
            raise LaunchError(refusal)
        return explained

    def preempt(self) -> None:
        self._stopped = True
        super().preempt()

    def kill(self) -> None:
        self._stopped = True
        super().kill()

    def close(self) -> None:
        try:
            if self._missing:
                self.terminate()
            super().close()
        finally:
            self._reasons.remove_job(self._job)
            for process in self.processes:
                self._withdrawer.remove_process(process.pid)
            self._asking.shutdown()
            self._undo.close()

    def _handle(self) -> str:
        step = f" step {self._step}" if self._is_step else ""
        return f"Slurm job {self._job}{step}" if self._job else ""

    def _is_unclear(self, end: Exit) -> bool:
        """Return whether Slurm may have caused an end, rather than the workers or the user."""
        return not self._stopped and (end.cause is not Cause.WORKERS or not 0 <= end.code < _SIGNALED)

    def _explain(self, end: Exit) -> Exit:
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
        if cause is None or (cause is Cause.CANCELED and self._is_srun_killed()):
            return replace(end, message=self._last_error(end)) if end.cause is Cause.NOT_STARTED else end
        details = [self._handle(), reason, problem]
        return replace(end, cause=cause, message="; ".join(filter(None, details)))

    def _is_srun_killed(self) -> bool:
        """Return whether a signal has ended ``srun``, whose job Slurm then cancels."""
        return (self.processes[0].poll() or 0) < 0

    def _last_error(self, end: Exit) -> str:
        """Return what ``srun`` said last."""
        errors = [line for line in self._said if "error" in line]
        return errors[-1] if errors else end.message
