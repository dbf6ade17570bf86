"""Launch that waits in the queue of an engine, and then is a group of agents on the nodes that the engine provides."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from subprocess import SubprocessError
from typing import Any

from det_cluster.agent_group import AgentGroup
from det_core.errors import LaunchError
from det_core.interfaces.launcher import WITHDRAWN, Allocation, Cause, Exit, LaunchRequest, Phase, Status

_TICK = 1.0
"""Maximum number of seconds between two looks at nodes without a connection."""
_SIGNALED = 128
"""Smallest exit code of a command below which a signal ended a process."""


class EngineJob(ABC):
    """Job of an engine, on whose nodes the agents of one launch run.

    `EngineLaunch` does the rest of the launch. It calls `advance`, `explain_end` and `find_ended_nodes` in a thread of
    its own, where they may wait for the engine for up to a minute. `status` is called in another thread, and returns at
    once.
    """

    poll_seconds: float = 5.0
    """Seconds between two calls of `advance`."""

    @abstractmethod
    def advance(self, request: LaunchRequest) -> AgentGroup | None:
        """Take the next step to the start, and return the agents once there are nodes. The first step submits the job.

        Args:
            request: the launch request, the same one each time.

        Raises:
            det_core.errors.LaunchError, det_core.errors.LaunchDelayed: as `Allocation.wait`.
        """

    @abstractmethod
    def status(self) -> Status:
        """Return the state of the job. It is `Phase.QUEUED` as long as the job waits for nodes.

        Afterwards, the phase and the names of the nodes come from the agents, unless this has the names.
        """

    def explain_end(self, end: Exit) -> Exit:
        """Return an end with the cause that the engine gives for it. By default, it does not change.

        Called once, for an end that neither the user nor the workers have caused, as far as the agents know.

        Raises:
            det_core.errors.LaunchError, det_core.errors.LaunchDelayed: nothing was started, as `Allocation.wait`.
        """
        return end

    def find_ended_nodes(self) -> Mapping[int, Exit]:
        """Return the nodes of which the engine knows that no process is left, by their index, with their ends.

        Called every `poll_seconds` as long as there is no connection to a node. By default, none is known, and the
        launch ends when the agent of such a node must have ended its workers (``AgentGroup.reconnect_seconds``).

        Raises:
            LaunchError, OSError, subprocess.SubprocessError: the engine does not answer. It is asked again.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Remove the job from the engine, also if it waits or was never submitted. Called once, after its agents ended.

        It takes at most 20 s.
        """

    def hand_over(self) -> None:
        """Leave the job to another runner, in place of `close`. By default, it is closed.

        Only jobs of launchers that adopt have to leave anything.
        """
        self.close()


class EngineLaunch(Allocation):
    """Launch whose nodes an engine provides.

    Args:
        request: the launch request.
        job: the job, which has not been submitted. It is closed with the launch.
    """

    def __init__(self, request: LaunchRequest, job: EngineJob) -> None:
        self._request = request
        self._job = job
        self._group: AgentGroup | None = None
        self._withdrawn: Exit | None = None
        self._is_stopped = self._is_handed_over = self._preempts_later = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="det-engine")
        self._step: Future[AgentGroup | None] | None = None
        self._step_at = 0.0
        """Time of the next step."""
        self._explanation: Future[Exit] | None = None
        self._proof: Future[Mapping[int, Exit]] | None = None
        self._noted = ""

    def wait(self, timeout: float) -> Exit | None:
        deadline = time.monotonic() + timeout
        while self._group is None and self._withdrawn is None:
            if not self._advance(deadline):
                return None
        if self._group is None:
            return self._withdrawn
        while True:
            self._confirm_ends(self._group)
            left = max(0.0, deadline - time.monotonic())
            end = self._group.wait(min(left, _TICK))
            if end or not left:
                break
        if end is None or not self._is_unclear(end):
            return end
        self._explanation = self._explanation or self._thread.submit(self._job.explain_end, end)
        left = max(0.0, deadline - time.monotonic())
        return self._explanation.result() if _is_done(self._explanation, left) else None

    def status(self) -> Status:
        of_job = self._job.status()
        if self._group is None or of_job.phase is Phase.QUEUED:
            return of_job
        of_agents = self._group.status()
        return replace(of_agents, handle=of_job.handle, nodes=of_job.nodes or of_agents.nodes)

    def preempt(self) -> None:
        self._stop(AgentGroup.preempt)

    def kill(self) -> None:
        self._stop(AgentGroup.kill)

    def hand_over(self) -> None:
        self._is_handed_over = True
        if self._group:
            self._group.hand_over()

    def close(self) -> None:
        self._thread.shutdown()
        with ExitStack() as closing:
            closing.callback(self._job.hand_over if self._is_handed_over else self._job.close)
            if self._step and not self._step.exception() and (late := self._step.result()):
                self._group = late
                closing.callback(late.close)
                (late.hand_over if self._is_handed_over else late.kill)()
            elif self._group:
                closing.callback(self._group.close)

    def _stop(self, method: Callable[[AgentGroup], None]) -> None:
        self._is_stopped = True
        if self._group:
            method(self._group)
        elif method is AgentGroup.kill or self._job.status().phase is Phase.QUEUED:
            self._withdrawn = WITHDRAWN
        else:  # workers that are adopted save a checkpoint
            self._preempts_later = True

    def _advance(self, deadline: float) -> bool:
        """Let the job take its next step, and return whether it was taken before the deadline."""
        if self._step is None:
            time.sleep(max(0.0, min(self._step_at, deadline) - time.monotonic()))
            if time.monotonic() < self._step_at:
                return False
            self._step = self._thread.submit(self._job.advance, self._request)
        if not _is_done(self._step, deadline - time.monotonic()):
            return False
        step, self._step = self._step, None
        self._step_at = time.monotonic() + self._job.poll_seconds
        self._group = step.result()
        if self._group and self._preempts_later:
            self._group.preempt()
        return True

    def _confirm_ends(self, group: AgentGroup) -> None:
        """Ask the engine about nodes without a connection. The trial may start elsewhere once they have ended."""
        if self._proof is None and group.lost_nodes and time.monotonic() >= self._step_at:
            self._proof = self._thread.submit(self._job.find_ended_nodes)
        if self._proof and self._proof.done():
            proof, self._proof = self._proof, None
            self._step_at = time.monotonic() + self._job.poll_seconds
            try:
                ended = proof.result()
            except (LaunchError, OSError, SubprocessError) as error:  # what cut the connection may also cut this one
                ended = {}
                self._note(f"the engine does not say which nodes have ended: {error}")
            for node, end in ended.items():
                group.confirm_end(node, end)

    def _note(self, text: str) -> None:
        """Write a line to the log, unless it was the last one."""
        if text != self._noted:
            self._noted = text
            self._request.log(None, "det", text)

    def _is_unclear(self, end: Exit) -> bool:
        """Return whether the engine may have caused an end, rather than the workers or the user."""
        return not self._is_stopped and (end.cause is not Cause.WORKERS or not 0 <= end.code < _SIGNALED)


def _is_done(future: Future[Any], seconds: float) -> bool:
    return bool(futures.wait([future], max(0.0, seconds)).done)
