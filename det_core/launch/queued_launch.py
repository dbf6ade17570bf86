"""Launch that waits for slots in the queue of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from det_core.errors import LaunchError
from det_core.interfaces.launcher import WITHDRAWN, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from det_core.launch.machine_slots import reserve_launch_slots
from det_core.launch.node_agent import explain_start_errors
from det_core.launch.trial_lock import TrialLock

__all__ = ["QueuedLaunch"]

_POLL_EVERY = 0.2
"""Seconds between two attempts to start a launch that waits."""
_EXPLAIN_EVERY = 2.0
"""Minimum number of seconds between two explanations of a wait, each of which reads the tickets of all trials."""


class QueuedLaunch(Allocation):
    """Launch that waits until earlier processes of the trial are gone and it has its slots, then is another launch.

    Args:
        request: the launch request.
        names: names of the slots that it may use. All runners of this machine share the slots with the same name.
        start: function that starts the other launch. It takes the positions of its slots in ``names``, and the file
            descriptors that the processes of the launch keep open, so that the slots stay in use if this process dies.
        hint: as for `reserve_launch_slots`.

    Raises:
        LaunchError: there are too few slots, or the processes could not be started.
    """

    def __init__(
        self,
        request: LaunchRequest,
        names: Sequence[str],
        start: Callable[[Sequence[int], Sequence[int]], Allocation],
        *,
        hint: str = "",
    ) -> None:
        self._start = start
        self._waiting = Status(phase=Phase.QUEUED)
        self._explain_at = 0.0
        self._launch: Allocation | None = None
        self._withdrawn: Exit | None = None
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
        while self._launch is None:
            if self._withdrawn is None:
                try:
                    with explain_start_errors("the trial"):
                        self._advance()
                except LaunchError as error:
                    self._withdraw(Exit(code=1, cause=Cause.NOT_STARTED, message=str(error)))
            if self._withdrawn or (left := end - time.monotonic()) <= 0:
                return self._withdrawn
            if self._launch is None:
                time.sleep(min(_POLL_EVERY, left))
        return self._launch.wait(max(0.0, end - time.monotonic()))

    def status(self) -> Status:
        return self._launch.status() if self._launch else self._waiting

    def preempt(self) -> None:
        if self._launch:
            self._launch.preempt()
        else:
            self._withdraw(WITHDRAWN)

    def kill(self) -> None:
        if self._launch:
            self._launch.kill()
        else:
            self._withdraw(WITHDRAWN)

    def close(self) -> None:
        try:
            if self._launch:
                self._launch.close()
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
            self._waiting = Status(phase=Phase.QUEUED, message="processes of its earlier run are still alive")
            return
        slots = self._reservation.poll()
        if slots is None:
            if time.monotonic() >= self._explain_at:
                self._explain_at = time.monotonic() + _EXPLAIN_EVERY
                self._waiting = Status(phase=Phase.QUEUED, message=self._reservation.explain_wait())
            return
        self._launch = self._start(slots, [self._lock.descriptor, *self._reservation.descriptors])
        self._lock.hand_over()  # the processes have inherited it
