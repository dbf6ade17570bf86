"""The newest run of a trial, whose runner may be gone while its processes still train."""

from __future__ import annotations

from det_core.interfaces.records import Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking._rows import RUNNER_ENDED


def newest_run(store: TrackingStore, trial: TrialRecord) -> Run | None:
    """Return the newest run of a trial, or None if it has none."""
    return next(iter(store.runs(trial.id)[-1:]), None)


def find_orphaned_run(store: TrackingStore, trial: TrialRecord) -> Run | None:
    """Return the newest run of a trial if no runner has seen its end, or None."""
    run = newest_run(store, trial)
    is_orphaned = run is not None and (run.end_time is None or run.end_reason == RUNNER_ENDED)
    return run if is_orphaned else None
