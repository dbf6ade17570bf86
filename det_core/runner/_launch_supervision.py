"""Supervision of one launch, from its start to its end, whatever its launcher raises."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from det_core.errors import DetError, LaunchDelayed, TrackingError
from det_core.interfaces.launcher import Allocation, Cause, Exit, Phase
from det_core.interfaces.records import State
from det_core.runner._log_writer import LogWriter
from det_core.runner._placement_display import PlacementDisplay

_TICK = 0.2


def supervise_launch(
    start: Callable[[], Allocation],
    *,
    display: PlacementDisplay,
    logs: LogWriter,
    requested: Callable[[], State | None],
    grace: float,
    on_running: Callable[[], None],
) -> Exit:
    """Start a launch, show its state, pass requests to stop on to it, and wait for its end.

    Any exception of the launcher while the processes run is an end, too, with the cause NODE_LOST, and an unexpected
    one before that has the cause NOT_STARTED. Its traceback is in the log of the trial.

    Args:
        start: function that starts the launch.
        display: the display of its state.
        logs: the log of the run.
        requested: function that returns the current request, or None.
        grace: seconds from a request to stop until the processes are killed.
        on_running: function called once the processes run.

    Raises:
        TrackingError: the tracking store has failed.
        DetError: nothing was started, and another attempt would fail, too.
    """
    is_running = False
    kill_at = math.inf
    try:
        with _ended(start(), logs) as allocation:
            while True:
                status = allocation.status()
                display.show(status)
                if status.phase is Phase.RUNNING and not is_running:
                    is_running = True
                    on_running()
                if end := allocation.wait(_TICK):
                    if not is_running and end.cause is not Cause.NOT_STARTED:  # a short run
                        on_running()
                    break
                logs.check()
                request = requested()
                if request and kill_at == math.inf:
                    kill_at = time.monotonic() + grace
                    allocation.preempt()
                if request is State.STOPPING_KILLED or time.monotonic() > kill_at:
                    allocation.kill()
    except TrackingError:
        raise
    except Exception as error:  # a launcher may be anybody's
        if is_running:
            end = Exit(code=1, cause=Cause.NODE_LOST, message=_log_error(error, logs))
        elif isinstance(error, LaunchDelayed):
            end = Exit(code=1, cause=Cause.NOT_STARTED, message=str(error))
        elif isinstance(error, DetError):
            display.clear()
            raise
        else:
            end = Exit(code=1, cause=Cause.NOT_STARTED, message=_log_error(error, logs))
    display.clear()
    return end


@contextmanager
def _ended(allocation: Allocation, logs: LogWriter) -> Iterator[Allocation]:
    """Close a launch at the end of the block. After an error, kill it first."""
    try:
        yield allocation
    except BaseException:
        _try(allocation.kill, logs)
        raise
    finally:
        _try(allocation.close, logs)


def _try(step: Callable[[], None], logs: LogWriter) -> None:
    """Take a step of the clean-up. An error in it does not change how the launch has ended."""
    try:
        step()
    except Exception as error:  # noqa: BLE001  (a launcher may be anybody's)
        _log_error(error, logs)


def _log_error(error: Exception, logs: LogWriter) -> str:
    """Write the traceback of an error of the launcher to the log, and return a summary of the error."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        logs.add(None, "det", line)
    return f"the launcher raised {type(error).__name__}: {error}"
