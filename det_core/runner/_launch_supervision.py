"""Supervision of one launch, from its start to its end, whatever its launcher raises."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from det_core.errors import DetError, LaunchDelayed, StaleRun, StoreBusy, TrackingError
from det_core.interfaces.launcher import Allocation, Cause, Exit, Phase
from det_core.interfaces.records import State
from det_core.launch._checked_launcher import LauncherDefect
from det_core.runner._log_writer import LogWriter
from det_core.runner._placement_display import PlacementDisplay

_TICK = 0.2
_START_SECONDS = 1800.0
"""Seconds that a launch may be in `Phase.STARTING`."""
_PREEMPTION_TIMEOUT = 600.0
"""Seconds from a request to stop until the processes are killed, unless the config sets preemption_timeout."""
_END_SECONDS = 60.0
"""Seconds from a kill until the launch must have ended."""


def supervise_launch(
    start: Callable[[], Allocation],
    *,
    display: PlacementDisplay,
    logs: LogWriter,
    requested: Callable[[], State | None],
    preemption_timeout: float | None,
    on_running: Callable[[], None],
    needs_change: Callable[[Phase], bool],
    renew_lease: Callable[[], None] | None = None,
) -> Exit:
    """Start a launch, show its state, pass requests to stop on to it, and wait for its end.

    Any exception of the launcher while the processes run is an end, too, with the cause NODE_LOST, and an unexpected
    one before that has the cause NOT_STARTED. Its traceback is in the log of the trial. A launch that does not start in
    time, or does not end after a kill, ends in the same way.

    Args:
        start: function that starts the launch.
        display: the display of its state.
        logs: the log of the run.
        requested: function that returns the current request, or None.
        preemption_timeout: seconds from a request to stop until the processes are killed, or None for
            `_PREEMPTION_TIMEOUT`.
        on_running: function called once the processes run.
        needs_change: function that takes the phase, and returns once whether the launch shall end for another one with
            another number of slots. Its workers save a checkpoint first, for which they have any time.
        renew_lease: function that raises an error unless this runner holds the experiment, if the launcher adopts
            launches. It is called before anything that ends processes. A runner that was replaced, or that cannot know
            it, leaves them to the next one.

    Raises:
        TrackingError: the tracking store has failed, or another runner holds the experiment.
        DetError: nothing was started, and another attempt would fail, too.
    """
    is_running = False
    started_at, kill_at = math.inf, math.inf
    grace = _PREEMPTION_TIMEOUT if preemption_timeout is None else preemption_timeout
    require_lease = renew_lease or (lambda: None)
    try:
        require_lease()
        with _ended(start(), logs, renew_lease) as allocation:
            while True:
                status, now = allocation.status(), time.monotonic()
                display.show(status)
                if status.phase is Phase.RUNNING and not is_running:
                    is_running = True
                    on_running()
                started_at = min(started_at, now) if status.phase is Phase.STARTING else math.inf
                if end := allocation.wait(_TICK):
                    if end.cause is Cause.NOT_STARTED and is_running:
                        end = replace(end, cause=Cause.NODE_LOST)
                    if not is_running and end.cause is not Cause.NOT_STARTED:  # a short run
                        on_running()
                    break
                logs.check()
                request = requested()
                if request and kill_at == math.inf:
                    kill_at = now + grace
                    require_lease()
                    allocation.preempt()
                elif not request and needs_change(status.phase):
                    require_lease()
                    allocation.preempt()
                _check_time_limits(now, started_at, kill_at)
                if request is State.STOPPING_KILLED or now > kill_at:
                    kill_at = min(kill_at, now)
                    require_lease()
                    allocation.kill()
    except TrackingError:
        raise
    except Exception as error:
        if isinstance(error, DetError) and not isinstance(error, LaunchDelayed) and not is_running:
            display.clear()
            raise
        is_explained = isinstance(error, DetError) and not isinstance(error, LauncherDefect)
        message = str(error) if is_explained else _log_error(error, logs)
        end = Exit(code=1, cause=Cause.NODE_LOST if is_running else Cause.NOT_STARTED, message=message)
    display.clear()
    return end


def _check_time_limits(now: float, started_at: float, kill_at: float) -> None:
    """Raise an error if a launch takes too long to start, or to end after a kill."""
    if now > started_at + _START_SECONDS:
        raise LaunchDelayed(f"it has its slots, but has not started within {_START_SECONDS:.0f} s")
    if now > kill_at + _END_SECONDS:
        raise LaunchDelayed(f"it was killed, but has not ended within {_END_SECONDS:.0f} s")


@contextmanager
def _ended(allocation: Allocation, logs: LogWriter, renew_lease: Callable[[], None] | None) -> Iterator[Allocation]:
    """Close a launch at the end of the block. After an error, kill it first, unless another runner may adopt it."""
    try:
        yield allocation
    except BaseException as error:
        may_be_adopted = renew_lease is not None and _may_be_replaced(error, renew_lease)
        _try(allocation.hand_over if may_be_adopted else allocation.kill, logs)
        raise
    finally:
        _try(allocation.close, logs)


def _may_be_replaced(error: BaseException, renew_lease: Callable[[], None]) -> bool:
    """Return whether another runner may hold the experiment after an error of this one."""
    if not isinstance(error, TrackingError):
        try:
            renew_lease()
        except TrackingError as problem:
            error = problem
    return isinstance(error, StaleRun | StoreBusy)


def _try(step: Callable[[], None], logs: LogWriter) -> None:
    """Take a step of the clean-up. An error in it does not change how the launch has ended."""
    try:
        step()
    except Exception as error:  # noqa: BLE001  (a launcher may be anybody's)
        _log_error(error, logs)


def _log_error(error: Exception, logs: LogWriter) -> str:
    """Write the traceback of an error of the launcher to the log, and return a summary of the error."""
    for line in "".join(traceback.format_exception(error.__cause__ or error)).splitlines():
        logs.add(None, "det", line)
    return str(error) if isinstance(error, LauncherDefect) else f"the launcher raised {type(error).__name__}: {error}"
