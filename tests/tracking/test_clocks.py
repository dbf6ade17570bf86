"""Clocks that are set back and forth. Neither order nor retention nor leases depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from det_core.core.checkpoint_retention import find_superfluous
from det_core.errors import ExperimentBusy, StaleRun
from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _column_types

CONFIG = {"searcher": {"metric": "loss", "smaller_is_better": True}}
HOURS = {"steady": [0], "back": [5, 4, 3, 2, 1, 0], "back and forth": [0, 900, -900, 3, -3], "stands still": [0]}


@pytest.fixture(params=HOURS)
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock of the tracking store by one that is set with each reading."""
    steps: Sequence[int] = HOURS[request.param]
    looks = 0

    def now(zone: tzinfo) -> datetime:
        nonlocal looks
        looks += 1
        start = datetime.now(zone) if request.param != "stands still" else datetime(2026, 1, 1, tzinfo=zone)
        return start + timedelta(hours=steps[looks % len(steps)])

    monkeypatch.setattr(_column_types, "datetime", SimpleNamespace(now=now))
    assert _column_types.utc_now().tzinfo is timezone.utc


@pytest.mark.usefixtures("clock")
def test_order_and_retention_do_not_depend_on_the_clock(store: TrackingStore) -> None:
    experiment = store.create_experiment(config=CONFIG)
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    for number in range(1, 6):
        run = store.start_run(trial.id, allocation_id="a")
        uuid = f"c{number}"
        store.begin_checkpoint(uuid, trial_id=trial.id, run_id=run.run_id, storage={})
        report = MetricsReport(
            trial_id=trial.id,
            run_id=run.run_id,
            group="validation",
            steps_completed=number,
            metrics={"loss": float(number)},
        )
        store.report_metrics([report])
        store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=number, resources={}, metadata={})
        assert store.checkpoints(trial_id=trial.id)[-1].uuid == uuid
    assert store.start_run(trial.id, allocation_id="b").run_id == 6
    assert store.trial(trial.id).steps_completed == 5
    assert [row.steps_completed for row in store.metrics(trial.id)] == [1, 2, 3, 4, 5]
    assert [one.checkpoint.uuid for one in store.scored_checkpoints(experiment.id)] == ["c1", "c2", "c3", "c4", "c5"]
    store.set_trial_state(trial.id, State.COMPLETED)
    store.set_experiment_state(experiment.id, State.COMPLETED)
    policy: Any = SimpleNamespace(save_experiment_best=0, save_trial_best=1, save_trial_latest=2)
    assert [one.uuid for one in find_superfluous(store, experiment.id, policy)] == ["c2", "c3"]


@pytest.mark.parametrize("hours", [-900, 900])
def test_a_clock_that_steps_under_a_lease_leaves_one_writer(store: TrackingStore, hours: int) -> None:
    """The database's own clock is set. If it is set back, an abandoned lease lasts longer, and never shorter."""
    number = store.create_experiment(config={}).id
    store.acquire_lease(number, "first", seconds=60)
    database = store._database  # type: ignore[attr-defined]
    database.clock = database.clock + sa.literal(hours * 3600.0)
    if hours < 0:
        with pytest.raises(ExperimentBusy, match="first"):
            store.acquire_lease(number, "second", seconds=60)
        store.renew_lease(number, "first", seconds=60)
        assert store.lease_holder(number) == "first"
        assert store.lease_holders() == store.lease_holders([number, 999]) == {number: "first"}
        assert store.lease_holders([999]) == {}
        return
    assert store.lease_holder(number) is None
    assert store.lease_holders() == {}
    store.acquire_lease(number, "second", seconds=60)
    with pytest.raises(StaleRun, match="but by second"):
        store.renew_lease(number, "first", seconds=60)
    with pytest.raises(StaleRun, match="but by second"):
        store.set_experiment_state(number, State.COMPLETED, lease="first")
    store.set_experiment_state(number, State.ACTIVE, lease="second")
