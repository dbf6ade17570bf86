"""Ranking of trials and checkpoints by the searcher's metric, compared with a search of all metrics."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from det_core.interfaces.records import CheckpointState, MetricsReport, State, TrialOrder, TrialResult, Validation
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

SMALLER = {"searcher": {"metric": "loss", "smaller_is_better": True}}
LARGER = {"searcher": {"metric": "loss", "smaller_is_better": False}}
VALUES = (0.5, 0.25, 1, 2.0, float("nan"), float("inf"), -float("inf"), None, True, "0.1", 10**400)


def report(trial_id: int, step: int, run_id: int = 1, group: str = "validation", **metrics: Any) -> MetricsReport:
    return MetricsReport(trial_id=trial_id, run_id=run_id, group=group, steps_completed=step, metrics=metrics)


def complete(store: TrackingStore, trial_id: int, run_id: int, step: int | None) -> str:
    uuid = f"{trial_id}-{run_id}-{step}-{random.getrandbits(64)}"
    store.begin_checkpoint(uuid, trial_id=trial_id, run_id=run_id, storage={})
    store.complete_checkpoint(uuid, run_id=run_id, steps_completed=step, resources={}, metadata={})
    return uuid


def best_and_latest(
    store: TrackingStore, trial_id: int, smaller_is_better: bool
) -> tuple[Validation | None, Validation | None]:
    """Return the best and the latest validation of a trial, found by reading all of them."""
    found = [
        Validation(value=float(value), steps_completed=row.steps_completed)
        for row in store.metrics(trial_id, group="validation")
        if isinstance(value := row.metrics.get("loss"), (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e300
    ]
    sign = 1 if smaller_is_better else -1
    return min(found, key=lambda one: sign * one.value, default=None), found[-1] if found else None


@pytest.mark.parametrize("config", [SMALLER, LARGER], ids=["smaller", "larger"])
def test_best_and_latest_are_correct_after_any_sequence_of_reports(
    store: TrackingStore, config: dict[str, Any]
) -> None:
    """Reports come in any order, are merged, and belong to new runs that archive metrics of older ones."""
    chance = random.Random(f"{config}")
    smaller_is_better = config["searcher"]["smaller_is_better"]
    experiment = store.create_experiment(config=config).id
    trials = [store.create_trial(experiment, hparams={}, seed=0).id for _ in range(2)]
    runs = {trial: store.start_run(trial, allocation_id="a").run_id for trial in trials}
    archived = 0
    for _ in range(40):
        trial, step = chance.choice(trials), chance.randrange(12)
        action = chance.random()
        if action < 0.1:
            runs[trial] = store.start_run(trial, allocation_id="a").run_id
        elif action < 0.2:
            complete(store, trial, runs[trial], step)
        else:
            seen = {row.steps_completed: row for row in store.metrics(trial, group="validation")}
            current = step in seen and seen[step].run_id == runs[trial]
            value = seen[step].metrics["loss"] if current and "loss" in seen[step].metrics else chance.choice(VALUES)
            other = {"other": 1} if chance.random() < 0.3 else {"loss": value}
            store.report_metrics(
                [report(trial, step, runs[trial], **other), report(trial, step, runs[trial], "training", loss=-9.0)]
            )
        results = {result.trial.id: result for result in store.trial_results(experiment)}
        for one in trials:
            # Of equal values, the earlier report is the best, which may have the later step.
            best, latest = best_and_latest(store, one, smaller_is_better)
            found = results[one].best
            assert (found and found.value) == (best and best.value)
            assert results[one].latest == latest
            of_one = store.best_validation(experiment, "loss", smaller_is_better=smaller_is_better, trial_id=one)
            assert of_one == (found and (found.value, one, found.steps_completed))
        archived += sum(1 for _ in store.metrics(trial, archived=True))
        values = [result.best.value for result in results.values() if result.best]
        overall = store.best_validation(experiment, "loss", smaller_is_better=smaller_is_better)
        assert (
            (overall and overall[0]) == (min(values) if smaller_is_better else max(values) if values else None)
            if values
            else overall is None
        )
    assert archived


def ids(results: Sequence[TrialResult]) -> list[int]:
    return [result.trial.id for result in results]


@pytest.fixture
def four(store: TrackingStore) -> list[int]:
    """Return trials with (best, latest) of (1, 3), none, (2, 2), (0, 5), trained for 20, 50, 10, 40 batches."""
    experiment = store.create_experiment(config=SMALLER).id
    made = []
    for values in ({10: 1.0, 20: 3.0}, {50: float("nan")}, {10: 2.0}, {30: 0, 40: 5.0}):
        trial = store.create_trial(experiment, hparams={}, seed=0).id
        store.start_run(trial, allocation_id="a")
        store.report_metrics([report(trial, step, loss=value) for step, value in values.items()])
        made.append(trial)
    return made


def test_trials_are_sorted_by_their_results(store: TrackingStore, four: list[int]) -> None:
    first, none, second, third = four

    def sort(order: TrialOrder, **options: Any) -> list[int]:
        return ids(store.trial_results(1, order=order, **options))

    assert sort(TrialOrder.ID) == four
    assert sort(TrialOrder.ID, reverse=True) == four[::-1]
    assert sort(TrialOrder.BEST) == [third, first, second, none]
    assert sort(TrialOrder.BEST, reverse=True) == [second, first, third, none]
    assert sort(TrialOrder.LATEST) == [second, first, third, none]
    assert sort(TrialOrder.BATCHES) == [none, third, first, second]
    assert sort(TrialOrder.BEST, limit=2, offset=1) == [first, second]
    store.set_trial_state(none, State.ERROR)
    store.set_trial_state(first, State.COMPLETED)
    assert sort(TrialOrder.BEST, states=[State.ERROR, State.COMPLETED]) == [first, none]
    assert sort(TrialOrder.BEST, states=[State.PAUSED]) == []
    assert sort(TrialOrder.BEST, trial_ids=[second, third, third + 100]) == [third, second]
    assert sort(TrialOrder.BEST, trial_ids=[]) == []


def test_the_largest_value_is_the_best_if_larger_is_better(store: TrackingStore, four: list[int]) -> None:
    experiment = store.create_experiment(config=LARGER).id
    trial = store.create_trial(experiment, hparams={}, seed=0).id
    store.start_run(trial, allocation_id="a")
    store.report_metrics([report(trial, step, loss=value) for step, value in enumerate((1.0, 3.0, 3.0, 2.0))])
    (result,) = store.trial_results(experiment)
    assert result.best == Validation(value=3.0, steps_completed=1)
    assert store.best_validation(experiment, "loss", smaller_is_better=False) == (3.0, trial, 1)
    other = store.create_trial(experiment, hparams={}, seed=0).id
    store.start_run(other, allocation_id="a")
    store.report_metrics([report(other, 1, loss=2.5)])
    for order, expected in (
        (TrialOrder.ID, [trial, other]),
        (TrialOrder.BEST, [trial, other]),
        (TrialOrder.LATEST, [other, trial]),
        (TrialOrder.BATCHES, [trial, other]),
    ):
        assert ids(store.trial_results(experiment, order=order)) == expected
        assert ids(store.trial_results(experiment, order=order, reverse=True)) == expected[::-1]


def test_checkpoints_are_sorted_with_the_best_first(store: TrackingStore, four: list[int]) -> None:
    first, _, _, third = four
    late, good, best = (complete(store, first, 1, step) for step in (20, 10, 30))
    never = best  # batch 30 of the first trial was not validated
    best, unknown = complete(store, third, 1, 30), complete(store, third, 1, None)
    store.begin_checkpoint("busy", trial_id=third, run_id=1, storage={})
    found = [(one.checkpoint.uuid, one.value) for one in store.scored_checkpoints(1)]
    assert found == [(best, 0.0), (good, 1.0), (late, 3.0), (never, None), (unknown, None)]
    assert [one.checkpoint.uuid for one in store.scored_checkpoints(1, trial_id=first, limit=2)] == [good, late]
    assert [one.checkpoint.uuid for one in store.scored_checkpoints(1, states=[CheckpointState.ACTIVE])] == ["busy"]


def test_a_checkpoint_keeps_its_validation_when_later_runs_report_earlier_steps(store: TrackingStore) -> None:
    experiment = store.create_experiment(config=SMALLER).id
    trial = store.create_trial(experiment, hparams={}, seed=0).id

    def scores() -> dict[str, float | None]:
        found = {one.checkpoint.uuid: one.value for one in store.scored_checkpoints(experiment)}
        validations = store.checkpoint_validations(trial_id=trial)
        assert {uuid: validations[uuid]["loss"] for uuid in found} == found
        return found

    store.start_run(trial, allocation_id="a")
    store.report_metrics([report(trial, 20, loss=1.0)])
    validated, unvalidated = complete(store, trial, 1, 20), complete(store, trial, 1, 30)
    store.start_run(trial, allocation_id="b")
    store.report_metrics([report(trial, 30, run_id=2, loss=2.0)])
    again = complete(store, trial, 2, 20)
    assert scores() == {validated: 1.0, again: 1.0, unvalidated: 2.0}
    store.delete_checkpoint(again)
    store.start_run(trial, allocation_id="c")
    store.report_metrics([report(trial, step, run_id=3, loss=3.0) for step in (1, 20, 30)])
    early = complete(store, trial, 3, 1)
    assert scores() == {validated: 1.0, unvalidated: 2.0, early: 3.0}


def test_an_upgrade_keeps_the_values_that_were_reported_before(tmp_path: Path) -> None:
    path = tmp_path / "det.db"
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "version_1" / "sqlite.sql").read_text())
    connection.execute("""UPDATE experiments SET config = '{"searcher": {"metric": "loss"}}'""")
    connection.execute("UPDATE metrics SET \"group\" = 'validation'")
    connection.commit()
    connection.close()
    with open_store(f"sqlite:///{path}") as store:
        (result,) = store.trial_results(1)
        assert result.best == result.latest == Validation(value=0.5, steps_completed=result.trial.steps_completed)


def test_listings_read_metrics_by_index_only(tmp_path: Path) -> None:
    """The query plans of SQLite must use an index for every access to metrics."""
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        asked: list[tuple[str, Any]] = []
        trial = store.create_trial(store.create_experiment(config=LARGER).id, hparams={}, seed=0).id
        store.start_run(trial, allocation_id="a")
        store.report_metrics([report(trial, step, loss=1) for step in range(3)])
        engine = store._database._readers  # type: ignore[attr-defined]
        sa.event.listen(engine, "before_cursor_execute", lambda *args: asked.append(args[2:4]))
        store.trial_results(1, order=TrialOrder.BEST)
        store.scored_checkpoints(1)
        store.best_validation(1, "loss", smaller_is_better=False)
        store.curves([trial], "loss", group="validation", points=2)
        store.curves([trial], "loss", group="validation", points=3)
        with engine.connect() as connection:
            plans = [
                str(row)
                for statement, parameters in [one for one in asked if "metrics" in one[0]]
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]
    looks = [
        plan for plan in plans if any(name in plan for name in ("metrics", "best", "latest", "point", "candidate"))
    ]
    assert len(looks) >= 14
    assert [plan for plan in looks if "SCAN" in plan] == []
    assert {"metrics_scored_by_value", "metrics_scored_by_step", "metrics_live"} <= set(" ".join(looks).split())
