"""Trials that start from a checkpoint of another experiment, as real processes on the Core API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from det_core import storage
from det_core.cli import main
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.errors import InvalidExperimentException
from det_core.interfaces.records import CheckpointRecord, ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

from .conftest import Submit, keep_all

pytestmark = pytest.mark.integration

# Each run loads the number in its starting point, prints it, and saves as many checkpoints as requested, counting up.
SCRIPT = """
import json, sys
import det_core as det
from det_core import core
info = det.get_cluster_info()
with core.init() as context:
    loaded = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            loaded = int((path / "number").read_text())
    print(json.dumps([info.latest_checkpoint, loaded, info.trial.steps_completed]), flush=True)
    saves, failures = info.trial.hparams["saves"], info.trial.hparams["failures"]
    for save in range(1, saves + 1):
        steps = info.trial.steps_completed + save
        with context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
            (path / "number").write_text(str(loaded + save))
    if info.trial.trial_run_id <= failures:
        sys.exit(1)
"""


@dataclass(frozen=True)
class Trained:
    """Result of a finished experiment, with the output of its script in each run."""

    trial_id: int
    checkpoints: list[CheckpointRecord]
    starts: list[Any]


Train = Callable[..., Trained]


@pytest.fixture
def new(store: TrackingStore, context_dir: Path) -> Callable[..., ExperimentRecord]:
    """Submit the script with additional config keys, of ``searcher`` or others."""
    (context_dir / "train.py").write_text(SCRIPT)

    def new(saves: int = 1, failures: int = 0, others: Any = (), **searcher: Any) -> ExperimentRecord:
        config = {
            "entrypoint": "python3 train.py",
            "hyperparameters": {"saves": saves, "failures": failures},
            "searcher": {"name": "single", "metric": "loss", **searcher},
            "max_restarts": failures,
            "checkpoint_storage": keep_all(),
            **dict(others),
        }
        return submit_experiment(store, parse_config(config), context_dir)

    return new


@pytest.fixture
def train(store: TrackingStore, new: Callable[..., ExperimentRecord]) -> Train:
    """Submit an experiment, run it to the end, and return its result."""

    def train(*args: Any, **keys: Any) -> Trained:
        experiment = new(*args, **keys)
        assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
        (trial,) = store.trials(experiment.id)
        starts = [json.loads(line.log) for line in store.logs(trial.id) if line.stdtype == "stdout"]
        return Trained(trial.id, store.checkpoints(trial_id=trial.id), starts)

    return train


def test_a_trial_starts_from_the_latest_checkpoint_of_another(train: Train) -> None:
    first = train(saves=3)
    assert first.starts == [[None, 0, 0]]
    warm = train(source_trial_id=first.trial_id)
    assert warm.starts == [[first.checkpoints[-1].uuid, 3, 0]]  # its weights, but not its count
    assert [checkpoint.steps_completed for checkpoint in warm.checkpoints] == [1]


def test_a_trial_starts_from_a_checkpoint_given_by_uuid(train: Train) -> None:
    first = train(saves=3)
    wanted = first.checkpoints[1].uuid
    assert train(source_checkpoint_uuid=wanted).starts == [[wanted, 2, 0]]


@pytest.mark.parametrize("key", ["source_trial_id", "source_checkpoint_uuid"])
def test_a_restart_continues_from_the_trials_own_checkpoint(train: Train, key: str) -> None:
    first = train(saves=2)
    source = first.checkpoints[-1].uuid
    warm = train(saves=1, failures=2, **{key: first.trial_id if key == "source_trial_id" else source})
    own = [checkpoint.uuid for checkpoint in warm.checkpoints]
    assert warm.starts == [[source, 2, 0], [own[0], 3, 1], [own[1], 4, 2]]


def test_all_runs_start_from_the_same_checkpoint_although_its_trial_saves_further_ones(
    store: TrackingStore, train: Train, new: Callable[..., ExperimentRecord]
) -> None:
    first = train(saves=1)
    source = first.checkpoints[-1]
    warm = new(saves=0, failures=1, source_trial_id=first.trial_id)
    store.begin_checkpoint("later", trial_id=first.trial_id, run_id=source.run_id, storage=source.storage)
    store.complete_checkpoint("later", run_id=source.run_id, steps_completed=9, resources={"a": 1}, metadata={})
    assert ExperimentRunner(store, warm.id).run() is State.COMPLETED
    (trial,) = store.trials(warm.id)
    starts = [json.loads(line.log) for line in store.logs(trial.id) if line.stdtype == "stdout"]
    assert starts == [[source.uuid, 1, 0]] * 2


def test_a_trial_class_starts_from_another_trial(store: TrackingStore, new_experiment: Submit) -> None:
    first = new_experiment()
    assert ExperimentRunner(store, first.id).run() is State.COMPLETED
    (source,) = store.trials(first.id)
    body = "def on_batch(self, batch):\n    print(batch, self.weight)"
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 10}}
    warm = new_experiment(body, searcher={**searcher, "source_trial_id": source.id})
    assert ExperimentRunner(store, warm.id).run() is State.COMPLETED
    (trial,) = store.trials(warm.id)
    log = [line.log for line in store.logs(trial.id) if line.stdtype == "stdout"]
    *_, last = store.metrics(source.id, group="validation")
    batch, weight = log[0].split()
    assert batch == "0"
    assert abs(float(weight) - 1) == last.metrics["validation_loss"] != 1
    assert trial.steps_completed == 10


@pytest.fixture
def refused(store: TrackingStore, new: Callable[..., ExperimentRecord]) -> Callable[..., None]:
    """Assert that submission fails with the message, and leaves the store as it is."""

    def refused(message: str, **keys: Any) -> None:
        before = store.experiments()
        with pytest.raises(InvalidExperimentException, match=message):
            new(**keys)
        assert store.experiments() == before

    return refused


def test_missing_sources_are_refused(refused: Callable[..., None]) -> None:
    for identity in (0, 7):
        refused(rf"source_trial_id: there is no trial {identity} .*`det checkpoint list`", source_trial_id=identity)
    refused(r"source_checkpoint_uuid: there is no checkpoint nonsense ", source_checkpoint_uuid="nonsense")


def test_two_sources_are_refused(refused: Callable[..., None]) -> None:
    refused("has both source_trial_id and", source_trial_id=1, source_checkpoint_uuid="x")


def test_a_trial_without_checkpoints_is_refused(train: Train, refused: Callable[..., None]) -> None:
    first = train(saves=0)
    refused(f"source_trial_id: trial {first.trial_id} has no checkpoint", source_trial_id=first.trial_id)


def test_deleted_checkpoints_are_refused(train: Train, refused: Callable[..., None]) -> None:
    first = train(saves=2)
    uuid = first.checkpoints[-1].uuid
    assert main(["checkpoint", "rm", uuid, "--yes"]) == 0
    refused(
        f"checkpoint {uuid} is DELETED, but trials can only start from one that is COMPLETED",
        source_checkpoint_uuid=uuid,
    )
    assert train(source_trial_id=first.trial_id).starts == [[first.checkpoints[0].uuid, 1, 0]]


def test_a_source_in_another_storage_is_refused(train: Train, refused: Callable[..., None], tmp_path: Path) -> None:
    first = train()
    (source,) = first.checkpoints
    elsewhere = {"checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "elsewhere")}}
    message = f"{source.uuid} of trial 1 is not in this experiment's checkpoint_storage; .*'directory'"
    refused(message, source_trial_id=first.trial_id, others=elsewhere)
    storage.delete_stored_files(open_storage_block(source.storage), source.uuid)
    refused(message, source_checkpoint_uuid=source.uuid)


def test_a_source_that_is_gone_when_the_trial_starts_is_an_error(
    store: TrackingStore, train: Train, new: Callable[..., ExperimentRecord]
) -> None:
    first = train()
    experiment = new(source_trial_id=first.trial_id)
    store.delete_checkpoint(first.checkpoints[0].uuid)
    assert ExperimentRunner(store, experiment.id).run() is State.ERROR
    assert f"checkpoint {first.checkpoints[0].uuid} is DELETED" in str(store.experiment(experiment.id).error)
