"""Experiments and trials as objects of the SDK, with their attributes, metrics, logs and stop requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.errors import ConfigError, DetError, TrackingError
from det_core.experimental import Determined, client
from det_core.experimental.client import ExperimentState
from det_core.interfaces.records import State

from ..cli.conftest import Record
from ..waiting import wait_for

ENDLESS = {
    "name": "toy",
    "entrypoint": "model_def:T",
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 10**6}},
    "scheduling_unit": 1,
}
CODE = """
import time
from det_toy import ToyTrial

class T(ToyTrial):
    def on_batch(self, batch):
        time.sleep(0.05)
"""


def test_an_experiment_has_the_recorded_attributes(trained: Record) -> None:
    experiment = client.get_experiment(1)
    assert (experiment.id, experiment.name, experiment.state) == (1, "digits", State.COMPLETED)
    assert experiment.config["searcher"]["metric"] == "accuracy"
    assert [one.id for one in client.list_experiments()] == [1]
    assert client.list_experiments("accuracy > 0.9 or lr > 1") == []
    assert [one.id for one in client.list_experiments("lr = 0.1", sort_by="accuracy")] == [1]
    assert experiment.list_trials("state = ERROR") == []
    (trial,) = experiment.list_trials("lr < 1", sort_by="lr", limit=1)
    assert (trial.id, trial.experiment_id, trial.state) == (1, 1, State.COMPLETED)
    assert experiment.wait() is ExperimentState.COMPLETED
    assert experiment.await_first_trial().id == 1


def test_metrics_of_trials_are_iterated_by_batch(trained: Record) -> None:
    trial = client.get_trial(1)
    validations = list(trial.iter_metrics("validation"))
    assert (validations[0].steps_completed, validations[0].metrics) == (100, {"accuracy": 0.5})
    assert (validations[0].group, validations[0].trial_id, validations[0].trial_run_id) == ("validation", 1, 1)
    assert validations[0].end_time
    assert len(list(trial.iter_metrics())) == 6
    assert list(client.iter_trials_metrics([1], "validation")) == validations


def test_logs_of_trials_and_experiments_are_lines(trained: Record) -> None:
    for number in range(4):
        trained.log(f"line {number}")
    trial = client.get_trial(1)
    assert list(trial.logs())[:2] == ["hello\n", "line 0\n"]
    assert list(trial.logs(head=1)) == ["hello\n"]
    assert list(trial.logs(tail=2)) == ["line 2\n", "line 3\n"]
    assert list(client.get_experiment(1).logs(follow=True)) == list(trial.iter_logs())
    with pytest.raises(ValueError, match="tail cannot be combined with head or follow"):
        trial.logs(head=1, tail=1)
    for arguments in ({"head": -1}, {"head": 10**20}, {"tail": -1}, {"tail": 10**20}):
        with pytest.raises(ValueError, match="expected a number of lines >= 0"):
            trial.logs(**arguments)


def test_experiments_are_archived_and_unarchived(trained: Record) -> None:
    experiment = client.get_experiment(1)
    experiment.archive()
    assert trained.store.experiment(1).archived
    experiment.unarchive()
    assert not trained.store.experiment(1).archived


def test_an_experiment_without_a_runner_cannot_be_stopped(trained: Record) -> None:
    experiment = client.get_experiment(1)
    for stop in (experiment.pause, experiment.cancel, experiment.kill):
        with pytest.raises(TrackingError, match="nothing is running experiment 1, which is COMPLETED"):
            stop()
    with pytest.raises(TrackingError, match="trial 1 is already COMPLETED"):
        client.get_trial(1).kill()
    with pytest.raises(DetError, match="experiment 1 is COMPLETED; nothing is left"):
        experiment.activate()


def test_kill_requests_the_end_of_a_trial(record: Record) -> None:
    trial = client.get_trial(1)
    with pytest.raises(TrackingError, match="nothing is running trial 1.*det experiment resume 1"):
        trial.kill()
    record.store.acquire_lease(1, "host:1:1:x", seconds=60)
    trial.kill()
    assert trial.state is State.STOPPING_KILLED


def test_waiting_ends_at_the_time_limit(record: Record) -> None:
    record.store.acquire_lease(1, "host:1:1:x", seconds=60)
    with pytest.raises(TimeoutError, match="experiment 1 is still running"):
        client.get_experiment(1).wait(interval=0.01, timeout=0.02)
    empty = record.store.create_experiment(config={})
    record.store.acquire_lease(empty.id, "host:1:1:x", seconds=60)
    with pytest.raises(TimeoutError, match=f"experiment {empty.id} has no trial"):
        client.get_experiment(empty.id).await_first_trial(interval=0.01, timeout=0.02)
    record.store.set_experiment_state(empty.id, State.ERROR, error="no code")
    with pytest.raises(DetError, match="is ERROR without a trial: no code"):
        client.get_experiment(empty.id).await_first_trial()


def test_login_chooses_the_store_of_the_client(
    trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_arguments", (None, None))
    monkeypatch.setenv("DET_HOME", str(tmp_path / "nowhere"))
    client.login(trained.store.url, "ada", password="not used")
    assert client.create_model("m").name == "m"
    assert trained.store.model("m").owner == "ada"
    with pytest.raises(DetError, match="is not a database URL"):
        client.login("nonsense")
    assert client.get_model("m").name == "m"


@pytest.mark.integration
@pytest.mark.slow
def test_an_experiment_in_the_background_is_paused_continued_and_killed(context_dir: Path, tmp_path: Path) -> None:
    (context_dir / "model_def.py").write_text(CODE)
    file = tmp_path / "config.yaml"
    file.write_text(str(ENDLESS))
    experiment = Determined().create_experiment(str(file), str(context_dir))
    trial = experiment.await_first_trial()
    wait_for(lambda: any(trial.iter_metrics("training")))
    experiment.pause()
    assert experiment.wait(interval=0.05, timeout=240) is State.PAUSED
    reached = trial.select_checkpoint(latest=True).batch_number
    experiment.activate()
    wait_for(lambda: any(one.steps_completed > reached for one in trial.iter_metrics("training")))
    experiment.kill()
    assert experiment.wait(interval=0.05, timeout=240) is State.CANCELED
    assert any("run 2 of trial 1 starts from checkpoint" in line for line in experiment.logs())


def test_an_invalid_config_is_an_error_before_anything_is_recorded(context_dir: Path) -> None:
    with pytest.raises(ConfigError, match="searcher"):
        Determined().create_experiment({"entrypoint": "a:B"}, context_dir)
    with pytest.raises(DetError, match="context directory .* does not exist"):
        Determined().create_experiment(ENDLESS, "nowhere")
    assert Determined().list_experiments() == []
