"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from det_core.config import Block, Positive
from det_core.errors import LaunchError
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch._trial_lock import TrialLock
from det_core.launch._withdrawal import WITHDRAWN
from det_core.launch._worker_environment.thread_limits import thread_limit_variables
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names
from det_core.launch.machine_slots import reserve_launch_slots
from det_core.launch.node_agent import AllocatedNode, NodeAgent, explain_start_errors

_POLL_EVERY = 0.2
"""Seconds between two attempts to start a launch that waits."""
_EXPLAIN_EVERY = 2.0
"""Minimum number of seconds between two explanations of a wait, each of which reads the tickets of all trials."""


class LocalConfig(Block):
    """Options of the local launcher."""

    slots: Positive = Field(default=1, examples=[4], json_schema_extra={"unit": "slots"})
    """Number of workers that this machine can run if it has no GPU."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._names = local_slot_names(config.slots)
        self.slots: int = len(self._names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if count_gpus() else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return LocalAllocation(replace(request, secrets={}), self._names)  # these workers read the user's own files


class LocalAllocation(Allocation):
    """Launch on this machine, which starts when earlier processes of the trial are gone and it has its slots.

    Args:
        request: the launch request.
        names: names of the slots that it may use.

    Raises:
        LaunchError: this machine has too few slots, or the processes could not be started.
    """

    def __init__(self, request: LaunchRequest, names: Sequence[str]) -> None:
        self._request = request
        self._variables = thread_limit_variables(len(names)) if len(names) > 1 else {}
        self._status = Status(phase=Phase.QUEUED)
        self._explain_at = 0.0
        self._agent: NodeAgent | None = None
        self._withdrawn: Exit | None = None
        hint = "" if count_gpus() else ", or set launcher: {type: local, slots: N}"
        self._reservation = reserve_launch_slots(request, names, hint=hint)
        with explain_start_errors("the trial"):
            self._lock = TrialLock(request.key)
        try:
            self._advance()
        except BaseException:
            self._release()
            raise

    def wait(self, timeout: float) -> Exit | None:
        end = time.monotonic() + timeout
        while self._agent is None:
            if self._withdrawn is None:
                try:
                    self._advance()
                except LaunchError as error:
                    self._withdraw(Exit(code=1, cause=Cause.NOT_STARTED, message=str(error)))
            if self._withdrawn or (left := end - time.monotonic()) <= 0:
                return self._withdrawn
            if self._agent is None:
                time.sleep(min(_POLL_EVERY, left))
        return self._agent.wait(max(0.0, end - time.monotonic()))

    def status(self) -> Status:
        return self._status

    def preempt(self) -> None:
        if self._agent:
            self._agent.preempt()
        else:
            self._withdraw(WITHDRAWN)

    def kill(self) -> None:
        if self._agent:
            self._agent.kill()
        else:
            self._withdraw(WITHDRAWN)

    def close(self) -> None:
        try:
            if self._agent:
                self._agent.close()
        finally:
            self._release()

    def _release(self) -> None:
        self._lock.close()
        self._reservation.close()

    def _withdraw(self, end: Exit) -> None:
        self._withdrawn = self._withdrawn or end

    def _advance(self) -> None:
        """Take the next steps to the start, as far as they are possible now."""
        if not self._lock.try_to_lock():  # first, as those who hold it may also hold the slots
            self._status = Status(phase=Phase.QUEUED, message="processes of its earlier run are still alive")
            return
        slots = self._reservation.poll()
        if slots is None:
            if time.monotonic() >= self._explain_at:
                self._explain_at = time.monotonic() + _EXPLAIN_EVERY
                self._status = Status(phase=Phase.QUEUED, message=self._reservation.explain_wait())
            return
        self._agent = NodeAgent(
            self._request,
            AllocatedNode(name="local", slot_ids=slots),
            env={**gpu_variables(slots), **self._variables},
            inherit=[self._lock.descriptor, *self._reservation.descriptors],
            parent=private_directory("runs"),
        )
        self._lock.close()  # the processes have inherited it
        self._status = Status(phase=Phase.RUNNING)
