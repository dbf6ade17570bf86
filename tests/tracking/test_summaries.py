"""Summaries and counts of experiments, names of metrics, and other queries that pages and lists need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from det_core.errors import RecordNotFound, StaleRun
from det_core.interfaces.records import (
    LONGEST_BRIEF,
    ExperimentSummary,
    LogLine,
    MetricsReport,
    NewTrial,
    Run,
    State,
    TrialUpdate,
    Validation,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _experiment_summaries, _metric_names, _trials, open_store


def test_lists_of_ids_are_no_parameters_whose_number_databases_limit(tmp_path: Path) -> None:
    """PostgreSQL allows 65,535, but a search may start more trials at once."""
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        experiment = store.create_experiment(config={}).id
        trial = new_run(store, experiment).trial_id
        several = [trial, *range(1000, 3000)]
        numbers: list[int] = []
        for engine in (store._database._readers, store._database._writers):  # type: ignore[attr-defined]
            sa.event.listen(
                engine,
                "before_cursor_execute",
                lambda _, cursor, statement, parameters, context, executes_many: numbers.append(
                    0 if executes_many else len(parameters)
                ),
            )
        assert [one.id for one in store.experiments_by_id([experiment, *several])] == [experiment]
        assert [one.id for one in store.trials_by_id(several)] == [trial]
        assert [one.trial.id for one in store.trial_results(experiment, trial_ids=several)] == [trial]
        assert store.running_seconds([experiment, *several])[3000 - 1] == 0
        assert store.experiment_summaries([experiment] * 2000)[experiment].trials == 1
        new = NewTrial(hparams={}, seed=0, source_checkpoint=None)
        starts = [TrialUpdate(request_id=one, state=State.QUEUED, new=new) for one in several]
        ends = [TrialUpdate(request_id=one, state=State.COMPLETED) for one in several]
        store.record_search(experiment, [], starts)
        assert len(store.record_search(experiment, [], ends)) == len(several)
        assert max(numbers) < 100 < len(several)


def test_running_time_leaves_out_what_waits_and_counts_what_overlaps_once(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for module in (_trials, _experiment_summaries):
        monkeypatch.setattr(module, "utc_now", lambda: now)
    one, empty = (store.create_experiment(config={}).id for _ in range(2))
    first = new_run(store, one)
    store.set_trial_placement(first.trial_id, 1, "queued (waiting for a slot)")
    now += timedelta(seconds=1000)
    store.set_trial_placement(first.trial_id, 1, "queued (it is next)")
    store.set_trial_placement(first.trial_id, 1, "running on n1")
    now += timedelta(seconds=10)
    second = new_run(store, one)
    now += timedelta(seconds=5)
    store.end_run(first.trial_id, 1)
    assert store.running_seconds([one, empty]) == {one: 15, empty: 0}
    now += timedelta(seconds=2)
    store.end_run(second.trial_id, 1)
    now += timedelta(seconds=3600)
    store.start_run(first.trial_id, allocation_id="b")
    now += timedelta(seconds=1)
    assert store.running_seconds([one]) == {one: 18}
    assert store.trial_running_seconds([first.trial_id, second.trial_id]) == {first.trial_id: 16, second.trial_id: 7}


def test_costs_count_all_runs_until_now_whose_slots_are_known(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(timezone.utc) - timedelta(hours=10)
    monkeypatch.setattr(_trials, "utc_now", lambda: now)
    resources = {"slots_per_trial": 4}
    fixed, elastic, empty = (
        store.create_experiment(config={"resources": each, "data": "x" * LONGEST_BRIEF}).id
        for each in (resources, {**resources, "min_slots_per_trial": 1}, {"slots_per_trial": [4]})
    )
    first, second, waiting = (new_run(store, fixed) for _ in range(3))
    store.set_trial_placement(waiting.trial_id, 1, "queued (waiting for a slot)")
    lost, _ = new_run(store, elastic), new_run(store, empty)
    now += timedelta(hours=2)
    for run in (first, lost):
        store.end_run(run.trial_id, 1, slots=3)
        store.start_run(run.trial_id, allocation_id="b")
    now += timedelta(hours=1)
    store.end_run(second.trial_id, 1, slots=1)
    found = store.experiment_summaries([fixed, elastic, empty])
    costs = {each: (summary.slot_hours, summary.uncounted_runs) for each, summary in found.items()}
    assert costs == {
        fixed: (pytest.approx(2 * 3 + 8 * 4 + 3 * 1, abs=0.1), 0),
        elastic: (pytest.approx(2 * 3, abs=0.1), 1),
        empty: (0, 1),
    }


def test_running_time_ends_with_the_lease_of_a_runner_that_is_gone(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = datetime.now(timezone.utc) - timedelta(hours=3)
    experiment = store.create_experiment(config={"resources": {"slots_per_trial": 2}}).id
    with monkeypatch.context() as patch:
        patch.setattr(_trials, "utc_now", lambda: began)
        run = new_run(store, experiment)
    store.acquire_lease(experiment, "gone", seconds=-3600)
    assert store.running_seconds([experiment]) == {experiment: pytest.approx(7200, abs=60)}
    assert store.experiment_summaries([experiment])[experiment].slot_hours == pytest.approx(4, abs=0.1)
    store.acquire_lease(experiment, "next", seconds=60)
    assert store.running_seconds([experiment]) == {experiment: pytest.approx(7200, abs=60)}
    assert store.run(run.trial_id, 1).end_reason == "its runner ended first"
    store.start_run(run.trial_id, allocation_id="b")
    assert store.running_seconds([experiment]) == {experiment: pytest.approx(7200, abs=60)}


def new_run(store: TrackingStore, experiment: int) -> Run:
    return store.start_run(store.create_trial(experiment, hparams={}, seed=0).id, allocation_id="a")


def add_report(
    store: TrackingStore, run: Run, step: int, metrics: Mapping[str, Any], group: str = "validation"
) -> None:
    report = MetricsReport(trial_id=run.trial_id, run_id=run.run_id, group=group, steps_completed=step, metrics=metrics)
    store.report_metrics([report])


def add_checkpoint(store: TrackingStore, run: Run, uuid: str, *sizes: int) -> None:
    store.begin_checkpoint(uuid, trial_id=run.trial_id, run_id=run.run_id, storage={})
    resources = {f"file {number}": size for number, size in enumerate(sizes)}
    store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=1, resources=resources, metadata={})


def test_an_experiment_that_is_named_many_times_is_summarized_once(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = store.create_experiment(config={}).id
    summarize = Mock(wraps=ExperimentSummary)
    monkeypatch.setattr(_experiment_summaries, "ExperimentSummary", summarize)
    assert list(store.experiment_summaries([experiment] * 1000)) == [experiment]
    assert summarize.call_count == 1


@pytest.mark.parametrize("smaller_is_better", [True, False])
def test_summaries_have_the_numbers_of_each_experiment(store: TrackingStore, smaller_is_better: bool) -> None:
    config = {"searcher": {"metric": "loss", "smaller_is_better": smaller_is_better}}
    one, other, empty = (store.create_experiment(config=config).id for _ in range(3))
    reversed_searcher = {"metric": "loss", "smaller_is_better": not smaller_is_better}
    opposite = store.create_experiment(config={"searcher": reversed_searcher}).id
    runs = [new_run(store, each) for each in (one, one, other, opposite)]
    store.set_trial_state(runs[1].trial_id, State.ACTIVE)
    for run, sign in zip(runs, (1, -1, 1, 1), strict=True):
        for step in range(1, 5):
            add_report(store, run, step, {"loss": sign * step, "else": -100})
            add_report(store, run, step, {"loss": -1000 * sign}, group="training")
    add_checkpoint(store, runs[0], "a", 10**12, 5)
    add_checkpoint(store, runs[1], "b", 100)
    add_checkpoint(store, runs[1], "deleted", 1000)
    store.delete_checkpoint("deleted")
    store.begin_checkpoint("active", trial_id=runs[0].trial_id, run_id=1, storage={})
    add_checkpoint(store, runs[2], "partly", 7)
    found = store.experiment_summaries([other, opposite, one, empty])
    assert list(found) == [other, opposite, one, empty]
    least, greatest = Validation(value=1.0, steps_completed=1), Validation(value=4.0, steps_completed=4)
    of_one = (Validation(value=-4.0, steps_completed=4), runs[1]) if smaller_is_better else (greatest, runs[0])
    expected: dict[int, tuple[int, int, int, int, int, Validation | None, Run | None]] = {
        one: (2, 1, 0, 2, 10**12 + 105, *of_one),
        other: (1, 0, 0, 1, 7, least if smaller_is_better else greatest, runs[2]),
        opposite: (1, 0, 0, 0, 0, greatest if smaller_is_better else least, runs[3]),
        empty: (0, 0, 0, 0, 0, None, None),
    }
    for experiment, (trials, running, failed, checkpoints, size, best, trained) in expected.items():
        assert found[experiment] == ExperimentSummary(
            trials=trials,
            running_trials=running,
            failed_trials=failed,
            checkpoints=checkpoints,
            checkpoint_bytes=size,
            best=best,
            best_trial_id=trained.trial_id if trained else None,
            slot_hours=0.0,
            uncounted_runs=trials,
        )
        assert type(found[experiment].checkpoint_bytes) is int
    assert store.experiment_summaries([]) == {}
    with pytest.raises(RecordNotFound, match=f"there is no experiment {opposite + 1}"):
        store.experiment_summaries([one, opposite + 1])


def test_the_size_of_a_partly_deleted_checkpoint_does_not_count(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={}).id
    run = new_run(store, experiment)
    add_checkpoint(store, run, "a", 3, 4)
    assert store.experiment_summaries([experiment])[experiment].checkpoint_bytes == 7
    store.delete_checkpoint("a", remaining={"file 0": 3})
    summary = store.experiment_summaries([experiment])[experiment]
    assert (summary.checkpoints, summary.checkpoint_bytes) == (0, 0)
    for uuid in "bcd":
        add_checkpoint(store, run, uuid, 1 << 62)
    assert store.experiment_summaries([experiment])[experiment].checkpoint_bytes == 3 << 62


def test_counts_are_those_of_the_lists(store: TrackingStore) -> None:
    for number in range(12):
        labels = ["even"] if number % 2 == 0 else ["odd", "x"]
        made = store.create_experiment(config={"name": f"Name {number % 3}", "labels": labels}).id
        store.set_experiment_state(made, State.COMPLETED if number % 4 else State.ERROR)
        store.edit_experiment(made, archived=number > 8)
    filters: list[dict[str, Any]] = [
        {},
        {"states": [State.ERROR]},
        {"states": [State.ERROR, State.COMPLETED]},
        {"states": [State.ACTIVE]},
        {"name": "name 1"},
        {"label": "even"},
        {"label": "eve"},
        {"archived": True},
        {"archived": False, "label": "odd", "name": "2", "states": [State.COMPLETED]},
    ]
    for each in filters:
        found = store.experiments(**each)
        assert store.count_experiments(**each) == len(found)
        for order in ("id", "name", "progress", "state"):
            whole = [made.id for made in store.experiments(**each, order=order)]
            pages = [store.experiments(**each, order=order, limit=4, offset=offset) for offset in (0, 4, 8)]
            assert [made.id for page in pages for made in page] == whole
            assert sorted(whole) == sorted(made.id for made in found)


def test_trials_of_any_experiments_are_returned_in_the_requested_order(store: TrackingStore) -> None:
    ids = [new_run(store, store.create_experiment(config={}).id).trial_id for _ in range(4)]
    asked = [ids[2], ids[0], ids[3]]
    assert store.trials_by_id(asked) == [store.trial(trial_id) for trial_id in asked]
    assert store.trials_by_id([]) == []
    assert store.trials_by_id([ids[0]] * 3) == [store.trial(ids[0])], "an answer has a record once"
    assert store.trials_by_id([ids[3] + 1, ids[0]]) == [store.trial(ids[0])], "unknown ones are left out"


def test_experiments_by_id_leave_out_unknown_ones(store: TrackingStore) -> None:
    ids = [store.create_experiment(config={"name": str(number)}).id for number in range(3)]
    assert store.experiments_by_id([ids[2], ids[0], ids[2] + 1]) == [store.experiment(ids[0]), store.experiment(ids[2])]
    assert store.experiments_by_id([]) == []


def test_the_newest_log_lines_are_in_order(store: TrackingStore) -> None:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1)
    now = datetime.now(timezone.utc)
    store.add_logs(
        [LogLine(trial_id=trial.id, run_id=1, rank=0, stdtype="stdout", log=str(n), time=now) for n in range(9)]
    )
    newest = store.logs(trial.id, limit=3, newest=True)
    assert [line.log for line in newest] == ["6", "7", "8"]
    assert [line.log for line in store.logs(trial.id, after=newest[0].id, newest=True)] == ["7", "8"]
    earlier = store.logs(trial.id, before=newest[0].id, limit=2, newest=True)
    assert [line.log for line in earlier] == ["4", "5"]
    assert store.logs(trial.id, after=earlier[1].id, before=newest[0].id) == []


def test_names_of_metrics_are_those_of_numbers(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={}).id
    first, second, empty = (new_run(store, experiment) for _ in range(3))
    add_report(store, first, 1, {"loss": 1, "é": 0.5, "text": "x", "flag": True, "none": None, "list": [1]})
    add_report(store, first, 2, {"nan": float("nan"), "loss": 2})
    add_report(store, first, 2, {"lr": 0.1}, group="training")
    add_report(store, second, 1, {"accuracy": 1}, group="validation")
    add_report(store, second, 1, {"text": "x"}, group="texts")
    assert store.metric_names([first.trial_id]) == {"training": ["lr"], "validation": ["loss", "nan", "é"]}
    assert store.metric_names([second.trial_id, first.trial_id, empty.trial_id]) == {
        "training": ["lr"],
        "validation": ["accuracy", "loss", "nan", "é"],
    }
    assert store.metric_names([]) == store.metric_names([empty.trial_id]) == {}
    with pytest.raises(RecordNotFound, match=f"there is no trial {empty.trial_id + 1}"):
        store.metric_names([first.trial_id, empty.trial_id + 1])


def test_names_of_metrics_are_read_from_some_reports(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = store.create_experiment(config={}).id
    runs = [new_run(store, experiment) for _ in range(8)]
    for run in runs:
        for step in range(10):
            add_report(store, run, step, {f"trial {run.trial_id}": 1, f"step {step}": 1})
    monkeypatch.setattr(_metric_names, "_TRIALS", 4)
    monkeypatch.setattr(_metric_names, "_REPORTS", 8)
    (names,) = store.metric_names([run.trial_id for run in runs]).values()
    read = {f"trial {runs[number].trial_id}" for number in (0, 2, 4, 7)}
    assert set(names) == {"step 0", "step 1", "step 8", "step 9", *read}


def test_runs_have_times_and_reasons(store: TrackingStore) -> None:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0).id
    assert store.runs(trial) == []
    first = store.start_run(trial, allocation_id="a")
    assert store.runs(trial) == [first]
    assert (first.start_time is None, first.end_time, first.end_reason) == (False, None, "")
    store.end_run(trial, 1, reason="the worker exited\0")
    ended = store.run(trial, 1)
    assert ended.end_time is not None
    assert ended.end_reason == "the worker exited\N{REPLACEMENT CHARACTER}"
    second = store.start_run(trial, allocation_id="b")
    store.end_run(trial, 2)
    store.end_run(trial, 2)
    store.set_trial_state(trial, State.COMPLETED)
    one, two = store.runs(trial)
    assert one == ended
    assert (two.start_time, two.end_reason) == (second.start_time, "")
    assert two.end_time is not None
    with pytest.raises(RecordNotFound, match="there is no run 3"):
        store.end_run(trial, 3)
    with pytest.raises(RecordNotFound, match=f"there is no trial {trial + 1}"):
        store.runs(trial + 1)
    with pytest.raises(StaleRun):
        store.end_run(trial, 2, lease="another")
