"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from det_core.config import Block, Positive
from det_core.errors import LaunchDelayed, LaunchError
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch._worker_environment.thread_limits import thread_limit_variables
from det_core.launch.gpu_slots import SlotPool, count_gpus, gpu_variables
from det_core.launch.node_agent import AllocatedNode, NodeAgent, explain_start_errors
from det_core.launch.processes import kill_lock_holders

_GRACE = 10.0
"""Seconds that processes of an earlier run have to end by themselves, as they do when their runner is gone."""
_LOCK_SECONDS = 15.0
"""Seconds to wait for the end of processes of an earlier run."""
_WITHDRAWN = "it was withdrawn before its start"
_POLL_EVERY = 0.05
"""Seconds between two attempts to start a launch that waits."""


class LocalConfig(Block):
    """Options of the local launcher."""

    slots: Positive = 1
    """Number of workers that this machine can run if it has no GPU."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._pool = SlotPool(count_gpus() or config.slots)
        self.slots: int = self._pool.size

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if count_gpus() else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return LocalAllocation(replace(request, secrets={}), self._pool)  # these workers read the user's own files


class LocalAllocation(Allocation):
    """Launch on this machine, which starts as soon as it has its slots and earlier processes of the trial are gone.

    Args:
        request: the launch request.
        pool: the slots of this machine.

    Raises:
        LaunchError: this machine has too few slots, or the processes could not be started.
    """

    def __init__(self, request: LaunchRequest, pool: SlotPool) -> None:
        self._request = request
        self._pool = pool
        self._status = Status(phase=Phase.QUEUED)
        self._agent: NodeAgent | None = None
        self._withdrawn: Exit | None = None
        self._held = ExitStack()
        self._slots: list[int] = []
        self._lock: _TrialLock | None = None
        try:
            self._advance()
        except BaseException:
            self._held.close()
            raise

    def wait(self, timeout: float) -> Exit | None:
        end = time.monotonic() + timeout
        while self._agent is None:
            if self._withdrawn is None:
                try:
                    self._advance()
                except LaunchError as error:
                    self._withdraw(str(error))
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
            self._withdraw(_WITHDRAWN)

    def kill(self) -> None:
        if self._agent:
            self._agent.kill()
        else:
            self._withdraw(_WITHDRAWN)

    def close(self) -> None:
        with self._held:
            if self._agent:
                self._agent.close()

    def _withdraw(self, message: str) -> None:
        self._withdrawn = self._withdrawn or Exit(code=1, cause=Cause.NOT_STARTED, message=message)

    def _advance(self) -> None:
        """Take the next steps to the start, as far as they are possible now."""
        if not self._slots:
            try:
                self._slots = self._pool.take(self._request.slots)
            except LaunchDelayed as delay:
                self._status = Status(phase=Phase.QUEUED, message=str(delay))
                return
            self._held.callback(self._pool.give_back, self._slots)
        if not self._lock:
            with explain_start_errors("the trial"):
                self._lock = _TrialLock(private_directory("locks") / f"{self._request.key}.lock")
            self._held.callback(self._lock.close)
        if not self._lock.try_to_lock():
            self._status = Status(phase=Phase.STARTING, message="processes of its earlier run are still alive")
            return
        ours = gpu_variables(self._slots)
        if self._pool.size > 1:
            ours |= thread_limit_variables(self._pool.size)
        self._agent = NodeAgent(
            self._request,
            AllocatedNode(name="local", slot_ids=self._slots),
            env=ours,
            inherit=[self._lock.descriptor],
            parent=private_directory("runs"),
        )
        self._lock.close()  # the processes have inherited it
        self._status = Status(phase=Phase.RUNNING)


class _TrialLock:
    """File lock that is held until all processes that inherit its descriptor are gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_to_lock(self) -> bool:
        """Try to lock the file, and end its holders if they do not end by themselves.

        Raises:
            LaunchDelayed: processes hold the lock that belong to another user or cannot be ended.
        """
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - self._began
        else:
            return True
        if waited > _GRACE:
            kill_lock_holders(self._path)
        if waited > _LOCK_SECONDS:
            raise LaunchDelayed(
                f"processes of an earlier run of {self._path.stem} are still alive after {_LOCK_SECONDS:.0f} s; "
                f"find them with: fuser -v {self._path}"
            )
        return False

    def close(self) -> None:
        """Close this process's descriptor of the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
