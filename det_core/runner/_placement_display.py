"""Display of where a launch is, in the tracking store and in the log of the trial."""

from __future__ import annotations

import time

from det_core.interfaces.launcher import Phase, Status
from det_core.interfaces.records import Run, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._log_writer import LogWriter

_SHOW_AFTER = 1.0
"""Seconds until the display of a launch that does not run yet. Most launches start sooner."""
_EVERY = 2.0
"""Minimum number of seconds between two changes of an explanation alone, which may change all the time."""
_HERE = Status(phase=Phase.RUNNING)
"""State of a launch on this machine, which needs no display."""


class PlacementDisplay:
    """Display of one launch.

    Args:
        store: the tracking store.
        run: the run of the launch.
        logs: the log of the run.
        lease: the holder of the experiment's lease.
    """

    def __init__(self, store: TrackingStore, run: Run, logs: LogWriter, *, lease: str) -> None:
        self._store = store
        self._run = run
        self._logs = logs
        self._lease = lease
        self._shown = _HERE
        self._shown_at = 0.0
        self._began = time.monotonic()

    def show(self, status: Status) -> None:
        """Record the state if it has changed. A trial that waits is QUEUED, otherwise it is ACTIVE."""
        before = self._shown
        moved = (status.phase, status.nodes, status.handle) != (before.phase, before.nodes, before.handle)
        if not moved and (status == before or time.monotonic() < self._shown_at + _EVERY):
            return
        if status.phase is not Phase.RUNNING and time.monotonic() < self._began + _SHOW_AFTER:
            return
        self._shown, self._shown_at = status, time.monotonic()
        if Phase.QUEUED in (status.phase, before.phase) and status.phase is not before.phase:
            state = State.QUEUED if status.phase is Phase.QUEUED else State.ACTIVE
            self._store.set_trial_state(self._run.trial_id, state, lease=self._lease)
        text = describe_status(status)
        self._store.set_trial_placement(self._run.trial_id, self._run.run_id, text)
        if moved and text:
            self._logs.add(None, "det", text)

    def clear(self) -> None:
        """Record that the launch has ended."""
        self.show(_HERE)


def describe_status(status: Status) -> str:
    """Return the state of a launch in one line, or "" for processes that run on this machine."""
    where = f" on {', '.join(status.nodes)}" if status.nodes else ""
    details = "; ".join(filter(None, (status.handle, status.message)))
    if status.phase is Phase.RUNNING and not where and not details:
        return ""
    return f"{status.phase.value}{where}{f' ({details})' if details else ''}"
