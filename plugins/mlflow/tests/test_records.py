"""What the observer records on the server."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from det_core import events
from det_core.interfaces.records import State

from .observation import BEGIN, Observation
from .server import MLflowServer

pytestmark = pytest.mark.integration

Observe = Callable[..., Observation]


def test_a_trial_becomes_a_run_with_parameters_metrics_and_tags(observe: Observe) -> None:
    worker = observe(tags={"team": "vision", "year": 2026})
    worker.start()
    worker.report(1, loss=0.5)
    worker.report(2, loss=0.25, accuracy=1)
    worker.report(2, "validation", loss=0.75, by_class={"cat": 0.1})
    worker.flush()
    run = worker.run
    assert (run.name, run.status) == ("trial 3", "RUNNING")
    assert run.parameters == {"lr": "0.1", "optimizer.name": "sgd", "optimizer.betas": "[0.9, 0.99]"}
    assert run.history("training/loss") == [(1, 0.5), (2, 0.25)]
    assert run.metrics == {
        "training/loss": 0.25,
        "training/accuracy": 1,
        "validation/loss": 0.75,
        "validation/by_class.cat": 0.1,
    }
    expected = {"team": "vision", "year": "2026", "det.experiment_id": "7", "det.trial_id": "3", "det.state": "RUNNING"}
    assert expected.items() <= run.tags.items()
    assert run.tags["mlflow.source.name"] == "model_def:Trial"


@pytest.mark.parametrize(
    ("state", "status", "ends"),
    [(State.COMPLETED, "FINISHED", True), (State.ERROR, "FAILED", True), (State.CANCELED, "KILLED", True)],
)
def test_the_state_of_a_trial_becomes_the_status_of_its_run(
    observe: Observe, state: State, status: str, ends: bool
) -> None:
    worker, runner = observe(), observe("runner")
    worker.start()
    worker.flush()
    runner.end(state, "ValueError: no" if state is State.ERROR else None)
    runner.flush()
    run = runner.run
    assert (run.status, run.tags["det.state"], "end_time" in run.info) == (status, state.value, ends)
    assert run.tags.get("det.error") == ("ValueError: no" if state is State.ERROR else None)
    again = observe()
    again.start(run_id=2)
    again.flush()
    assert (again.run.status, again.run.tags.get("det.error")) == ("RUNNING", None)


def test_a_preempted_worker_leaves_a_scheduled_run_which_the_next_one_continues(observe: Observe) -> None:
    first, second = observe(), observe()
    first.start()
    first.report(1, loss=0.5)
    first.send(events.WorkerFinished, error=None, preempted=True)
    first.flush()
    assert (first.run.status, first.run.tags["det.state"]) == ("SCHEDULED", "PAUSED")
    second.start(run_id=2)
    second.report(2, loss=0.25)
    second.flush()
    assert (second.run.id, second.run.status, second.run.tags["det.run_id"]) == (first.run.id, "RUNNING", "2")
    assert second.run.history("training/loss") == [(1, 0.5), (2, 0.25)]


def test_the_later_value_of_a_step_that_is_trained_again_counts(observe: Observe) -> None:
    first, second = observe(), observe()
    first.start()
    first.report(1, loss=0.5)
    first.report(2, loss=0.25)
    first.flush()
    second.start(run_id=2)
    later = BEGIN + timedelta(seconds=3)
    second.send(
        events.MetricsReported, run_id=2, group="training", steps_completed=2, metrics={"loss": 0.75}, time=later
    )
    second.flush()
    assert sorted(second.run.history("training/loss")) == [(1, 0.5), (2, 0.25), (2, 0.75)]
    assert second.run.metrics == {"training/loss": 0.75}


def test_a_paused_experiment_schedules_the_runs_of_workers_that_were_killed(observe: Observe) -> None:
    runner, worker = observe("runner"), observe()
    runner.send(events.ExperimentStarted, resumed=False)
    runner.send(events.TrialStarted)
    worker.start()
    worker.flush()
    runner.send(events.ExperimentFinished, state=State.PAUSED)
    runner.flush()
    assert [run.status for run in runner.runs] == ["SCHEDULED", "SCHEDULED"]


def test_a_search_is_the_parent_of_its_trials_whoever_comes_first(observe: Observe) -> None:
    early, runner, late = observe(trial_id=1), observe("runner"), observe(trial_id=2)
    early.start(trial_id=1)
    early.flush()
    assert "mlflow.parentRunId" not in early.runs[0].tags
    runner.send(events.ExperimentStarted, resumed=False)
    runner.flush()
    early.flush()
    late.start(trial_id=2)
    late.flush()
    runner.end(State.ERROR, "it never started", trial_id=4)
    runner.send(events.ExperimentFinished, state=State.COMPLETED)
    runner.flush()
    runs = {run.name: run for run in runner.runs}
    parent = runs.pop(runner.name)
    assert runs.keys() == {"trial 1", "trial 2", "trial 4"}
    assert {run.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.id}
    assert (parent.status, runs["trial 4"].status) == ("FINISHED", "FAILED")
    assert json.loads(parent.read("det/config.json")) == runner.config
    assert runs["trial 1"].files() == []


def test_a_single_trial_has_no_parent_and_keeps_the_config_itself(observe: Observe) -> None:
    runner, worker = observe("runner"), observe()
    for each in (runner, worker):
        each.config["searcher"] = {"name": "single"}
        each.observer.open(each.observer._context)
    runner.send(events.ExperimentStarted, resumed=False)
    runner.flush()
    worker.start()
    worker.flush()
    runner.end(State.COMPLETED)
    runner.send(events.ExperimentFinished, state=State.COMPLETED)
    runner.flush()
    assert worker.run.status == "FINISHED"
    assert json.loads(worker.run.read("det/config.json")) == worker.config


def test_experiments_of_two_tracking_stores_are_not_confused(
    observe: Observe, server: MLflowServer, request: pytest.FixtureRequest
) -> None:
    one = observe()
    other = Observation(server, "worker", "another", one.name, 3, {"tracking_uri": server.address})
    for each in (one, other):
        each.start()
        each.flush()
    assert len(one.runs) == 2


def test_repeated_events_change_nothing(observe: Observe) -> None:
    worker = observe()
    worker.start()
    sent = [worker.report(1, loss=0.5), worker.report(1, "validation", loss=math.nan)]
    worker.save("one", model=b"1")
    worker.flush()
    before = worker.run
    again = observe()
    again.start()
    for event in sent:
        again.observer.notify(event)
        again.observer.notify(event)
    again.save("one", model=b"1")
    again.flush()
    assert again.run.history("training/loss") == [(1, 0.5)]
    assert (again.run.tags, again.run.parameters) == (before.tags, before.parameters)


def test_numbers_that_json_lacks_are_recorded(observe: Observe) -> None:
    worker = observe()
    worker.start()
    worker.report(1, nan=math.nan, high=math.inf, low=-math.inf, flag=True)
    worker.flush()
    metrics = worker.run.metrics
    assert metrics["training/high"] > 1e308
    assert metrics["training/low"] < -1e308
    assert metrics["training/flag"] == 1
    assert math.isnan(float(metrics["training/nan"]))


def test_what_mlflow_cannot_represent_is_skipped_with_one_notice(
    observe: Observe, caplog: pytest.LogCaptureFixture
) -> None:
    worker = observe()
    worker.start()
    for step in (1, 2, 3):
        worker.report(step, loss=0.5, note="fine", points=[1, 2], huge=10**400, metrics={"a@b": 1, "a#b": 2})
    worker.flush()
    assert worker.run.metrics == {"training/loss": 0.5, "training/a_b": 1}
    assert len(worker.run.history("training/a_b")) == 3
    notices = [record.getMessage() for record in caplog.records]
    assert sorted(notice.partition(" ")[0] for notice in notices) == [
        "'training/a#b'",
        "MLflow",
        "metric",
        "metric",
        "metric",
    ]


def test_long_values_are_cut_with_a_notice(observe: Observe, caplog: pytest.LogCaptureFixture) -> None:
    worker = observe()
    worker.start(hparams={"text": "ä" * 7000, "short": "b", "empty": "", "none": None})
    worker.flush()
    assert worker.run.parameters == {"text": "ä" * 6000, "short": "b", "empty": "", "none": "None"}
    assert "hyperparameter text of trial 3 is cut to the 6000 characters" in caplog.text


def test_more_than_a_batch_of_everything_arrives(observe: Observe) -> None:
    worker = observe()
    worker.start(hparams={f"p{number}": "x" * 6000 for number in range(250)})
    worker.report(1, metrics={f"m{number}": number for number in range(2500)})
    worker.flush()
    assert len(worker.run.parameters) == 250
    assert len(worker.run.metrics) == 2500


def test_entries_that_the_server_refuses_do_not_take_others_along(
    observe: Observe, caplog: pytest.LogCaptureFixture
) -> None:
    worker = observe()
    worker.start()
    worker.flush()
    worker.start(hparams={"lr": "another value", "new": 1, "momentum": 0.9})
    worker.flush()
    assert worker.run.parameters.items() >= {"lr": "0.1", "new": "1", "momentum": "0.9"}.items()
    assert "MLflow refuses an entry in params of trial 3, 'lr'" in caplog.text


def test_a_checkpoint_is_a_reference_until_it_is_deleted(observe: Observe) -> None:
    worker, runner = observe(), observe("runner")
    worker.start()
    worker.save("one", 10, model=b"abc", readme=b"d")
    worker.save("two", 20, model=b"abc")
    worker.flush()
    assert worker.run.checkpoints["one"] == {
        "location": "file:///checkpoints/one",
        "steps_completed": 10,
        "files": 2,
        "size": 4,
    }
    assert worker.run.files() == []
    runner.send(events.CheckpointDeleted, storage_id="one", experiment_id=7, trial_id=3)
    runner.send(events.CheckpointDeleted, storage_id="never recorded", experiment_id=7, trial_id=3)
    runner.send(events.CheckpointDeleted, storage_id="of another trial", experiment_id=7, trial_id=99)
    runner.send(events.CheckpointDeleted, storage_id="of nobody")
    runner.flush()
    assert worker.run.checkpoints.keys() == {"two"}
    assert runner.observer._recorders[99].waiting == 0


def test_a_checkpoint_is_copied(observe: Observe) -> None:
    worker = observe(checkpoints="copy")
    worker.start()
    worker.save("one", contents={"state.pt": b"abc", "sub/ä b.txt": b"d"})
    worker.flush()
    assert worker.run.files("checkpoints/one") == ["checkpoints/one/state.pt", "checkpoints/one/sub/ä b.txt"]
    assert worker.run.read("checkpoints/one/state.pt") == b"abc"
    assert "one" in worker.run.checkpoints
    assert worker.observer.end_timeout > 600 > observe().observer.end_timeout
