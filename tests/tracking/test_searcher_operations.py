"""Searcher operations in the tracking store."""

from __future__ import annotations

import math

import pytest

from det_core.errors import ExperimentBusy, RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.records import Run, SearcherOperationRecord, TrialRecord
from det_core.interfaces.tracking import TrackingStore


def test_an_operation_is_set_completed_and_raised(store: TrackingStore, run: Run) -> None:
    assert store.searcher_operation(run.trial_id) is None
    store.set_searcher_operation(run.trial_id, 10)
    assert store.searcher_operation(run.trial_id) == SearcherOperationRecord(length=10, completed=False, metric=None)
    store.complete_searcher_operation(run.trial_id, 1, 10, 0.25)
    done = SearcherOperationRecord(length=10, completed=True, metric=0.25)
    assert store.searcher_operation(run.trial_id) == done
    store.set_searcher_operation(run.trial_id, 10)  # as a restarted runner does
    assert store.searcher_operation(run.trial_id) == done
    store.set_searcher_operation(run.trial_id, 20)
    assert store.searcher_operation(run.trial_id) == SearcherOperationRecord(length=20, completed=False, metric=None)


@pytest.mark.parametrize("metric", [math.nan, math.inf, -math.inf, -0.0, 1, 2**40])
def test_any_number_is_a_metric(store: TrackingStore, run: Run, metric: float) -> None:
    store.set_searcher_operation(run.trial_id, 1)
    store.complete_searcher_operation(run.trial_id, 1, 1, metric)
    operation = store.searcher_operation(run.trial_id)
    assert operation is not None
    assert repr(operation.metric) == repr(float(metric))


def test_only_the_open_operation_is_completed(store: TrackingStore, run: Run) -> None:
    def complete(length: int) -> None:
        store.complete_searcher_operation(run.trial_id, 1, length, 0.5)

    with pytest.raises(TrackingError, match="cannot complete length 10: the searcher has assigned no operation to it"):
        complete(10)
    store.set_searcher_operation(run.trial_id, 10)
    with pytest.raises(TrackingError, match="cannot complete length 5: the searcher's operation has length 10$"):
        complete(5)
    complete(10)
    with pytest.raises(TrackingError, match="length 10: the searcher's operation has length 10 and is completed"):
        complete(10)


def test_stale_runners_and_runs_cannot_change_an_operation(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    store.acquire_lease(trial.experiment_id, "me", seconds=60)
    store.set_searcher_operation(trial.id, 10, lease="me")
    with pytest.raises(StaleRun, match="no longer run by you"):
        store.set_searcher_operation(trial.id, 20, lease="you")
    with pytest.raises(ValueError, match="length 0; expected 1 to"):
        store.set_searcher_operation(trial.id, 0)
    with pytest.raises(ExperimentBusy):
        store.acquire_lease(trial.experiment_id, "you", seconds=60)
    store.start_run(trial.id, allocation_id="second")
    with pytest.raises(StaleRun, match="run 1"):
        store.complete_searcher_operation(trial.id, 1, 10, 0.5)
    for call in (
        lambda: store.searcher_operation(99),
        lambda: store.set_searcher_operation(99, 1),
        lambda: store.complete_searcher_operation(99, 1, 1, 0.0),
    ):
        with pytest.raises(RecordNotFound, match="trial 99"):
            call()
