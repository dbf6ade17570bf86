"""What only the pages of a server read: times of reports, newest values, runs of many trials, groups and rungs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from det_core.errors import CallTooLarge, FilterError
from det_core.interfaces.records import LONGEST_BRIEF, SEARCHED, MetricsReport, Shortened, State, searcher_metric
from det_core.interfaces.server_store import SHOWN_OF_REASONS, SHOWN_OF_TEXTS, ServerStore
from det_core.tracking import _brief_configs, _experiment_groups
from det_core.tracking.reading_limits import limited_reading

from .test_curves import losses, trial_with


@pytest.fixture
def experiment(store: ServerStore) -> int:
    return store.create_experiment(config={}).id


@pytest.mark.parametrize("points", [10, 1000])
def test_times_of_reports_are_returned_by_step(store: ServerStore, experiment: int, points: int) -> None:
    trial = store.create_trial(experiment, hparams={}, seed=0).id
    store.start_run(trial, allocation_id="a")
    start = datetime(2026, 5, 4, 3, 2, 1, 500_000, tzinfo=timezone.utc)
    which: dict[str, Any] = {"trial_id": trial, "run_id": 1, "metrics": {"loss": 1.0}}
    store.report_metrics(
        [
            MetricsReport(**which, group="training", steps_completed=step, time=start + timedelta(seconds=3 * step))
            for step in range(101)
        ]
    )
    store.report_metrics([MetricsReport(**which, group="validation", steps_completed=5)])
    found = store.report_times([trial], group="training", points=points, after=20)[trial]
    assert [step for step, _ in found] == (list(range(21, 101)) if points == 1000 else [*range(21, 101, 8), 100])
    assert [seconds for _, seconds in found] == pytest.approx(
        [start.timestamp() + 3 * step for step, _ in found], abs=1e-3
    )


def test_the_newest_numbers_of_a_metric_are_looked_up(store: ServerStore, experiment: int) -> None:
    trials = [
        trial_with(store, experiment, losses(values))
        for values in ({1: 1.0, 2: 2.0}, {1: 3.0, 2: float("nan"), 3: None}, {1: "x"}, {})
    ]
    rare = trial_with(store, experiment, {step: {"loss": 1.0} if step == 0 else {"other": 1.0} for step in range(101)})
    asked = [999, *trials, rare]
    assert store.latest_values(asked, "loss", group="training") == {trials[0]: (2, 2.0), trials[1]: (1, 3.0)}
    assert store.latest_values(asked, "loss", group="validation") == {}
    assert store.latest_values([], "loss", group="training") == {}


def test_the_first_runs_of_all_trials_come_first(store: ServerStore, experiment: int) -> None:
    trials = [store.create_trial(experiment, hparams={}, seed=0).id for _ in range(3)]
    for _ in range(3):
        store.start_run(trials[0], allocation_id="a" * 300)
    store.start_run(trials[2], allocation_id="b")
    store.report_early_exit(trials[2], 1, "x" * 300)
    found = store.runs_of_trials([*trials, 999], limit=3)
    assert [(run.trial_id, run.run_id) for run in found] == [(trials[0], 1), (trials[2], 1), (trials[0], 2)]
    assert found[1].early_exit == "x" * SHOWN_OF_TEXTS
    assert found[0].end_time is not None
    assert found[1].start_time == store.run(trials[2], 1).start_time


def test_the_trials_of_checkpoints_are_looked_up(store: ServerStore, experiment: int) -> None:
    trials = [store.create_trial(experiment, hparams={}, seed=0).id for _ in range(2)]
    for trial in trials:
        store.start_run(trial, allocation_id="a")
        store.begin_checkpoint(f"c{trial}", trial_id=trial, run_id=1, storage={})
    assert store.trials_of_checkpoints([f"c{trials[1]}", "unknown"]) == {f"c{trials[1]}": trials[1]}
    assert store.trials_of_checkpoints([]) == {}


def test_the_latest_runs_of_a_trial_have_the_beginnings_of_their_texts(store: ServerStore, experiment: int) -> None:
    trial = store.create_trial(experiment, hparams={}, seed=0).id
    for number in range(1, 4):
        store.start_run(trial, allocation_id="a")
        store.end_run(trial, number, reason=str(number) * 2 * SHOWN_OF_REASONS)
    found = store.latest_runs(trial, limit=2)
    assert [(run.run_id, run.end_reason) for run in found] == [(n, str(n) * SHOWN_OF_REASONS) for n in (2, 3)]


def test_experiments_are_grouped_by_any_value(store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: Mapping[str, list[Any]] = {"vision": [0.1, 0.1], "nlp": [0.1, 0.2], "": ["auto"], "none": [], "Vision": [7]}
    ids = [store.create_experiment(config={"name": name, "project": name}).id for name in rates]
    for experiment, values in zip(ids, rates.values(), strict=True):
        for value in values:
            store.create_trial(experiment, hparams={"lr": value}, seed=0)

    def groups(by: str, limit: int = 10, **options: Any) -> list[tuple[Any, ...]]:
        found = store.experiment_groups(by, limit=limit, **options)
        return [(one.value, one.is_mixed, one.count, [each.id for each in one.experiments]) for one in found]

    vision, nlp, auto, none, seven = ids
    expected = [(0.1, False, 1, [vision]), (7.0, False, 1, [seven]), ("auto", False, 1, [auto])]
    assert groups("lr") == [*expected, (None, True, 1, [nlp]), (None, False, 1, [none])]
    store.edit_experiment(none, project="nlp")
    by_project = {name: (count, shown) for name, _, count, shown in groups("project", order="name", reverse=True)}
    assert by_project == {"nlp": (2, [none, nlp]), "vision": (1, [vision]), "Vision": (1, [seven]), None: (1, [auto])}
    assert groups("project")[-1][0] is None
    pages = [groups("state", sort_by="lr", limit=2, offset=offset) for offset in (0, 2)]
    assert [(count, sorted(shown)) for ((_, _, count, shown),) in pages] == [
        (5, [vision, nlp]),
        (5, sorted([seven, auto])),
    ]
    assert groups("lr", where="name = nlp") == [(None, True, 1, [nlp])]
    (members,) = {tuple(sorted(one.members)) for one in store.experiment_groups("state", limit=1)}
    assert members == tuple(sorted(ids))
    assert [len(one.members) for one in store.experiment_groups("name", limit=1)] == [1, 0, 0, 0, 0]
    monkeypatch.setattr(_experiment_groups, "MOST_MEMBERS", 4)
    assert [one.members for one in store.experiment_groups("state", limit=1)] == [[]]
    for wrong in ("label", "lrr"):
        with pytest.raises(FilterError, match="expected"):
            groups(wrong)


def test_rungs_are_counted_by_the_lengths_of_trials(store: ServerStore) -> None:
    experiment = store.create_experiment(config={}).id
    for length, state in (
        (None, State.ACTIVE),
        (100, State.COMPLETED),
        (100, State.ERROR),
        (400, State.COMPLETED),
    ):
        trial = store.create_trial(experiment, hparams={}, seed=0).id
        if length:
            run = store.start_run(trial, allocation_id="a").run_id
            store.set_searcher_operation(trial, length)
            if state is not State.ACTIVE:
                store.complete_searcher_operation(trial, run, length, 0.5)
        store.set_trial_state(trial, state)
    found = [(one.length, one.trials, one.reached) for one in store.rung_counts(experiment)]
    assert found == [(100, 2, 1), (400, 1, 1)]


def test_a_brief_list_leaves_out_what_is_large(store: ServerStore) -> None:
    length = {"epochs": 3}
    searcher = {"metric": "loss", "smaller_is_better": False, "bound": float("nan"), "max_length": length}
    large = {"searcher": searcher, "project": "vision", "data": "x" * LONGEST_BRIEF}
    small = {"searcher": {"metric": "acc"}, "data": {"path": "here"}}
    ids = [store.create_experiment(config=config, original_config="a: 1").id for config in (large, small)]
    store.edit_experiment(ids[0], description="d" * (2 * SEARCHED))
    brief = store.experiments(brief=True, order="id", reverse=True)
    assert store.experiments_by_id(ids, brief=True) == brief
    assert [searcher_metric(one.config) for one in brief] == [("loss", False), ("acc", True)]
    assert brief[0].config["project"] == "vision"
    assert brief[0].config["searcher"]["max_length"] == length
    assert "data" not in brief[0].config
    assert brief[1].config["data"] == {"path": "here"}
    assert [one.original_config for one in brief] == ["", ""]
    assert len(brief[0].description) == SEARCHED
    assert [isinstance(one.config, Shortened) for one in brief] == [True, False]
    trials = [
        store.create_trial(ids[0], hparams=hparams, seed=0).id
        for hparams in ({"a": {"b": 1, "c": float("inf")}}, {"a": "x" * LONGEST_BRIEF})
    ]
    store.start_run(trials[0], allocation_id="a")
    store.set_trial_metadata(trials[0], 1, {"large": "x" * 1000})
    found = store.trials_by_id(trials, brief=True)
    assert [result.trial for result in store.trial_results(ids[0], brief=True)] == found
    assert [dict(trial.hparams.items()) for trial in found] == [{"a": {"b": 1, "c": float("inf")}}, {}]
    assert [trial.metadata for trial in found] == [{}, {}]


@pytest.mark.parametrize("odd", ["\0", -float("inf"), "[NaN,"])
def test_lists_decode_no_large_config(store: ServerStore, odd: object, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    monkeypatch.setattr(_brief_configs, "load_json_value", lambda text: decoded.append(len(text)) or json.loads(text))
    searcher = {"metric": "höhe [{", "smaller_is_better": False, "num_rounds": "x" * LONGEST_BRIEF}
    config = {"searcher": searcher, "odd": [odd, {"a": odd}], "data": "x" * 10 * LONGEST_BRIEF}
    identity = store.create_experiment(config=config).id
    (brief,) = store.experiments_by_id([identity], brief=True)
    assert brief.config == {"searcher": {"metric": "höhe [{", "smaller_is_better": False}}
    store.experiment_summaries([identity])
    # PostgreSQL reads no escapes that it cannot store.
    assert max(decoded) < 3 * LONGEST_BRIEF or (store.url.startswith("postgresql") and odd == "\0")


def test_empty_objects_count_as_the_memory_that_they_take(store: ServerStore, experiment: int) -> None:
    store.create_trial(experiment, hparams={"text": "x" * 300_000}, seed=0)
    with limited_reading(400_000):
        assert len(store.trials(experiment)) == 1
    store.create_trial(experiment, hparams={"objects": [{}] * 30_000}, seed=0)
    with limited_reading(600_000), pytest.raises(CallTooLarge):
        store.trials(experiment)
