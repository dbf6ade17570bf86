"""Values that cannot be recorded, which both databases reject with the same message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from det_core.errors import CallTooLarge, RecordNotFound, TrackingError, UnwritableText
from det_core.interfaces.records import MetricsReport, Run, SearchEvent, State, SystemMetrics, TrialRecord
from det_core.interfaces.tracking import TrackingStore

NO_TEXT = ("a\0b", "a\ud800b", "\udcff")


@pytest.mark.parametrize("text", NO_TEXT)
def test_text_that_no_database_can_store_is_rejected(store: TrackingStore, run: Run, text: str) -> None:
    experiment = store.trial(run.trial_id).experiment_id
    calls: list[Callable[[], Any]] = [
        lambda: store.create_experiment(config={"name": text}),
        lambda: store.create_experiment(config={}, owner=text),
        lambda: store.edit_experiment(experiment, notes=text),
        lambda: store.experiments(name=text),
        lambda: store.set_runner_state(run.trial_id, run.run_id, text),
        lambda: store.create_model(text),
        lambda: store.checkpoint(text),
        lambda: store.curves([run.trial_id], text, group="training", points=10),
        lambda: store.report_metrics([report(run, 1, {text: 1.0})]),
        lambda: store.report_metrics([report(run, 1, {"words": [text]})]),
    ]
    for call in calls:
        with pytest.raises(UnwritableText, match="has a NUL or half of a surrogate pair, which no database can store"):
            call()
    assert list(store.metrics(run.trial_id)) == []


def test_values_that_would_fill_every_list_are_rejected(store: TrackingStore, run: Run) -> None:
    experiment, large = store.trial(run.trial_id).experiment_id, "x" * (1 << 20) + "x"
    store.create_model("m")
    calls: list[Callable[[], Any]] = [
        lambda: store.create_experiment(config={"data": large}),
        lambda: store.create_experiment(config={}, original_config=large),
        lambda: store.create_experiment(config={"name": large}),
        lambda: store.edit_experiment(experiment, notes=large),
        lambda: store.create_model("n", metadata={"data": large}),
        lambda: store.edit_model("m", notes=large),
        lambda: store.create_model(large),
        lambda: store.create_trial(experiment, hparams={"data": large}, seed=0),
        lambda: store.set_trial_metadata(run.trial_id, run.run_id, {"data": large}),
        lambda: store.start_run(run.trial_id, allocation_id=large),
    ]
    for call in calls:
        with pytest.raises(TrackingError, match="expected at most 1048576: put data into files"):
            call()
    with pytest.raises(CallTooLarge):  # before all of it is read
        store.edit_experiment(experiment, notes=large + "\ud800")
    assert [(one.id, one.metadata, one.run_id) for one in store.trials(experiment)] == [(run.trial_id, {}, run.run_id)]
    assert [(one.id, one.notes) for one in store.experiments()] == [(experiment, "")]
    assert [(model.name, model.notes) for model in store.models()] == [("m", "")]


def test_events_of_a_search_that_would_fill_the_disk_are_rejected(store: TrackingStore, run: Run) -> None:
    experiment, large = store.trial(run.trial_id).experiment_id, "é" * 6_000_000  # as JSON, each has six characters
    for event, actions in ((["x", large], []), (["x"], [["create", large]])):
        with pytest.raises(CallTooLarge, match="expected at most 33554432|more than 32 MiB"):
            store.record_search(experiment, [SearchEvent(number=0, event=event, actions=actions)], [])
    assert store.search_events(experiment) == []


def test_nested_names_that_no_page_could_show_are_rejected(store: TrackingStore, run: Run) -> None:
    """Each repeats those around it: these 40 KiB become 5 MiB."""
    trial = store.trial(run.trial_id)
    nested = {"o" * 5000: {f"{number}": 0 for number in range(1100)}}
    store.begin_checkpoint("c", trial_id=trial.id, run_id=run.run_id, storage={})
    of_run: dict[str, Any] = {
        "trial_id": trial.id,
        "run_id": run.run_id,
        "group": "g",
        "time": datetime.now(timezone.utc),
    }
    calls: list[Callable[[], Any]] = [
        lambda: store.create_experiment(config={"data": nested}),
        lambda: store.create_model("m", metadata=nested),
        lambda: store.create_trial(trial.experiment_id, hparams=nested, seed=0),
        lambda: store.create_trial(
            trial.experiment_id, hparams={"o" * 5000: {key: {} for key in nested["o" * 5000]}}, seed=0
        ),
        lambda: store.set_trial_metadata(trial.id, run.run_id, nested),
        lambda: store.report_metrics([report(run, 1, nested)]),
        lambda: store.report_system_metrics([SystemMetrics(**of_run, metrics=nested)]),
        lambda: store.complete_checkpoint("c", run_id=run.run_id, steps_completed=1, resources={}, metadata=nested),
    ]
    for call in calls:
        with pytest.raises(CallTooLarge, match="have more than 4 MiB together; shorten the outer ones"):
            call()
    assert store.trials(trial.experiment_id) == [trial]


def test_the_end_of_a_message_that_would_fill_every_list_is_left_out(store: TrackingStore, run: Run) -> None:
    """What happened is recorded in any case."""
    experiment, large = store.trial(run.trial_id).experiment_id, "x" * (1 << 20) + "end"
    store.begin_checkpoint("c", trial_id=run.trial_id, run_id=run.run_id, storage={})
    store.complete_checkpoint("c", run_id=run.run_id, steps_completed=1, resources={}, metadata={})
    store.fail_checkpoint("c", error=large)
    store.set_runner_state(run.trial_id, run.run_id, large)
    store.report_early_exit(run.trial_id, run.run_id, large)
    store.end_run(run.trial_id, run.run_id, reason=large)
    store.set_experiment_state(experiment, State.ERROR, error=large)
    ended = store.run(run.trial_id, run.run_id)
    texts = (store.checkpoint("c").error, store.trial(run.trial_id).runner_state, ended.early_exit, ended.end_reason)
    assert {*texts, store.experiment(experiment).error} == {large.removesuffix("end")}


@pytest.mark.parametrize("labels", [[f"{number}" for number in range(101)], ["x" * 201]], ids=["many", "long"])
def test_labels_that_would_fill_every_list_are_rejected(store: TrackingStore, run: Run, labels: list[str]) -> None:
    experiment = store.trial(run.trial_id).experiment_id
    store.edit_experiment(experiment, add_labels=["a"])
    store.create_model("m", labels=["a"])
    calls: list[Callable[[], Any]] = [
        lambda: store.create_experiment(config={"labels": labels}),
        lambda: store.edit_experiment(experiment, add_labels=labels),
        lambda: store.create_model("n", labels=labels),
        lambda: store.edit_model("m", labels=labels),
    ]
    for call in calls:
        with pytest.raises(TrackingError, match="expected at most 100 of 200"):
            call()
    assert store.experiment(experiment).labels == ["a"]
    assert [(model.name, model.labels) for model in store.models()] == [("m", ["a"])]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": 5}, "expected text instead of 5"),
        ({"description": ["a"]}, r"expected text instead of \['a'\]"),
        ({"labels": 5}, "expected a list of labels instead of 5"),
        ({"labels": "ab"}, "expected a list of labels instead of 'ab'"),
        ({"labels": ["a", 5]}, "expected text instead of 5"),
    ],
)
def test_names_and_labels_that_are_no_text_are_rejected(
    store: TrackingStore, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrackingError, match=message):
        store.create_experiment(config=config)
    assert store.experiments() == []


def test_a_snapshot_without_events_is_rejected(store: TrackingStore, run: Run) -> None:
    experiment = store.trial(run.trial_id).experiment_id
    with pytest.raises(TrackingError, match="a snapshot of a search follows its events"):
        store.record_search(experiment, [], [], snapshot={"a": 1})
    assert store.search_snapshot(experiment) is None


def test_json_values_may_contain_any_text(store: TrackingStore, trial: TrialRecord) -> None:
    config = {"labels": ["\N{GRINNING FACE}"], "data": {"note": "a\0b \ud800"}}
    assert store.experiment(store.create_experiment(config=config).id).config == config


def test_an_id_that_no_database_has_is_unknown(store: TrackingStore, run: Run) -> None:
    reads: list[Callable[[int], Any]] = [
        store.experiment,
        store.trial,
        store.trials,
        lambda one: list(store.metrics(one)),
    ]
    for read in reads:
        with pytest.raises(RecordNotFound, match="integers of at most 64 bits"):
            read(10**20)


def test_characters_that_json_writes_as_surrogate_pairs_are_stored(store: TrackingStore, run: Run) -> None:
    metrics = {"\N{GRINNING FACE}": 1.0, "note": "\N{GRINNING FACE}"}
    store.report_metrics([report(run, 1, metrics)])
    assert next(store.metrics(run.trial_id)).metrics == metrics


def report(run: Run, step: int, metrics: dict[str, Any]) -> MetricsReport:
    return MetricsReport(
        trial_id=run.trial_id, run_id=run.run_id, group="validation", steps_completed=step, metrics=metrics
    )


@pytest.mark.parametrize("steps", [-1, 10**30])
def test_steps_out_of_range_are_rejected(store: TrackingStore, run: Run, steps: int) -> None:
    store.begin_checkpoint("c", trial_id=run.trial_id, run_id=run.run_id, storage={})
    calls: list[Callable[[], Any]] = [
        lambda: store.report_metrics([report(run, steps, {"loss": 1.0})]),
        lambda: store.complete_checkpoint("c", run_id=run.run_id, steps_completed=steps, resources={}, metadata={}),
        lambda: store.set_searcher_operation(run.trial_id, steps),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"{steps}.* expected .*to 9223372036854775807"):
            call()


def test_empty_names_are_rejected(store: TrackingStore, run: Run) -> None:
    with pytest.raises(ValueError, match="a metric has an empty name; expected one such as 'loss'"):
        store.report_metrics([report(run, 1, {"": 1.0})])
    with pytest.raises(ValueError, match="a hyperparameter has an empty name; expected one such as 'learning_rate'"):
        store.create_trial(store.trial(run.trial_id).experiment_id, hparams={"": 1}, seed=0)
    assert store.trial(run.trial_id).state is State.QUEUED
