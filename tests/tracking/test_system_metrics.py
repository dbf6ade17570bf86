"""System metrics in the tracking store."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from det_core.errors import CallTooLarge, RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.records import LARGEST_SAMPLE, Run, SystemMetrics, TrialRecord
from det_core.interfaces.tracking import TrackingStore


def sample(run: Run, group: str = "cpu", value: float = 1.5) -> SystemMetrics:
    time = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    metrics = {"agent": {"cpu_util_simple": value}}
    return SystemMetrics(trial_id=run.trial_id, run_id=run.run_id, group=group, metrics=metrics, time=time)


def test_samples_come_back_in_order(store: TrackingStore, run: Run) -> None:
    sent = [sample(run), sample(run, "memory"), sample(run)]  # equal groups and times are still two samples
    store.report_system_metrics(sent)
    store.report_system_metrics([])
    found = store.system_metrics(run.trial_id)
    assert [replace(row, id=0) for row in found] == sent
    assert store.system_metrics(run.trial_id, group="cpu") == [found[0], found[2]]
    assert store.system_metrics(run.trial_id, after=found[1].id) == found[2:]
    assert store.system_metrics(run.trial_id, limit=2) == found[:2]
    assert list(store.metrics(run.trial_id)) == []


def test_system_metrics_are_kept_after_their_run(store: TrackingStore, run: Run) -> None:
    store.report_system_metrics([sample(run, value=math.nan)])
    second = store.start_run(run.trial_id, allocation_id="second")
    store.report_system_metrics([sample(second)])
    assert [row.run_id for row in store.system_metrics(run.trial_id)] == [1, 2]
    with pytest.raises(StaleRun, match="run 1"):
        store.report_system_metrics([sample(second), sample(run)])
    assert len(store.system_metrics(run.trial_id)) == 2


def test_unknown_trials_raise_an_error(store: TrackingStore, trial: TrialRecord) -> None:
    with pytest.raises(RecordNotFound, match="trial 9"):
        store.system_metrics(9)


def test_a_sample_is_small(store: TrackingStore, run: Run) -> None:
    """Pages read thousands at once."""
    with pytest.raises(TrackingError, match=f"at most {LARGEST_SAMPLE}"):
        store.report_system_metrics([replace(sample(run), metrics={"agent": {"x" * LARGEST_SAMPLE: 1}})])


def test_a_call_has_a_maximum_number_of_samples(store: TrackingStore, run: Run) -> None:
    """Others wait to write in the meantime."""
    with pytest.raises(CallTooLarge, match="10001 samples; expected at most 10000"):
        store.report_system_metrics([sample(run)] * 10_001)
    assert store.system_metrics(run.trial_id) == []
