"""A damaged checkpoint costs the batches since the previous one, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from det_core.cli import main
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.errors import InvalidExperimentException, NoCheckpoint, StorageError
from det_core.interfaces.records import (
    CheckpointRecord,
    CheckpointState,
    ExperimentRecord,
    NewTrial,
    State,
    TrialRecord,
    TrialUpdate,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.runner._starting_point import choose_starting_point
from det_core.storage.directory import DirectoryStorage

from .test_experiment_runner import Submit, history, log_of, run, the_trial

PERIODS = {"min_checkpoint_period": {"batches": 10}, "min_validation_period": {"batches": 10}}
DAMAGED_ONCE = """
def on_batch(self, batch):
    mark = Path(os.environ["MARK"])
    if batch == 35 and not mark.exists():
        mark.touch()
        import det_core, shutil
        from det_core.tracking import open_store
        with open_store(det_core.get_cluster_info().master_url) as store:
            while (newest := store.checkpoints(trial_id=self.context.get_trial_id())[-1]).steps_completed < 30:
                time.sleep(0.01)  # it is stored in the background
        place = Path(newest.storage["container_path"], newest.uuid)
        {damage}
        os.kill(os.getpid(), signal.SIGKILL)
"""
DAMAGES = {
    "a flipped byte": '(place / "toy.json").chmod(0o600); (place / "toy.json").write_text("?")',
    "lost": "shutil.rmtree(place)",
}


def place_of(checkpoint: CheckpointRecord) -> Path:
    path = open_storage_block(checkpoint.storage).local_path(checkpoint.uuid)
    assert path
    return path


def flip(checkpoint: CheckpointRecord, name: str) -> None:
    file = place_of(checkpoint) / name
    file.chmod(0o600)
    first, *rest = file.read_bytes()
    file.write_bytes(bytes([first ^ 1, *rest]))


@pytest.mark.integration
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_trial_resumes_from_the_checkpoint_before_a_damaged_one(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, damage: str
) -> None:
    calm = new_experiment(**PERIODS)
    hurt = new_experiment(
        DAMAGED_ONCE.format(damage=DAMAGES[damage]),
        **PERIODS,
        max_restarts=1,  # for the kill
        environment={"environment_variables": [f"MARK={tmp_path / 'mark'}"]},
    )
    assert run(store, calm) is run(store, hurt) is State.COMPLETED
    trial = the_trial(store, hurt)
    assert trial.restarts == 1
    assert history(store, trial.id) == history(store, the_trial(store, calm).id)
    (damaged,) = store.checkpoints(trial_id=trial.id, states=[CheckpointState.ERROR])
    assert damaged.steps_completed == 30
    assert damaged.error
    log = log_of(store, hurt)
    assert log.count(f"WARNING: checkpoint {damaged.uuid} after 30 batches is damaged ({damaged.error}") == 1
    assert f"run {trial.run_id} of trial {trial.id} starts from checkpoint " in log
    assert "after 20 batches" in log


@pytest.fixture
def stopped(store: TrackingStore, new_experiment: Submit) -> ExperimentRecord:
    """Train 30 batches with a checkpoint after every 10, until the trial fails."""
    experiment = new_experiment(
        "def on_batch(self, batch):\n    if batch == 35 and not os.environ.get('GO'): raise RuntimeError('no')",
        **PERIODS,
        max_restarts=0,
    )
    assert run(store, experiment) is State.ERROR
    return experiment


def find_start(store: TrackingStore, trial: TrialRecord, *, from_beginning: bool = False) -> Any:
    config = parse_config(store.experiment(trial.experiment_id).config)
    manager = open_storage_block(config.dump()["checkpoint_storage"])
    return choose_starting_point(store, manager, trial, config.searcher, from_beginning=from_beginning)


@pytest.mark.integration
def test_a_trial_without_any_intact_checkpoint_starts_again_only_if_asked(
    store: TrackingStore, stopped: ExperimentRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO", "1")
    trial = the_trial(store, stopped)
    for checkpoint in store.checkpoints(trial_id=trial.id):
        flip(checkpoint, "toy.json")
    before = history(store, trial.id)
    assert run(store, stopped) is State.PAUSED
    assert f"det experiment resume {stopped.id} --from-beginning" in (store.experiment(stopped.id).error or "")
    assert len(store.checkpoints(trial_id=trial.id, states=[CheckpointState.ERROR])) == 3
    assert [row[1] for row in history(store, trial.id) if row[0] == "training"] == [10]
    assert history(store, trial.id) == [row for row in before if row[1] <= 10]
    assert ExperimentRunner(store, stopped.id, from_beginning=True).run() is State.COMPLETED
    assert the_trial(store, stopped).steps_completed == 50


Saved = Callable[..., ExperimentRecord]


def test_deleted_checkpoints_do_not_make_a_trial_start_again(store: TrackingStore, saved: Saved) -> None:
    experiment = saved(State.ERROR)
    assert main(["checkpoint", "rm", "--yes", "1-1", "1-2", "1-3"]) == 0
    with pytest.raises(NoCheckpoint, match=rf"the newest is 1-3: it was deleted.*resume {experiment.id} --from-begin"):
        find_start(store, store.trial(1))
    assert find_start(store, store.trial(1), from_beginning=True).checkpoint is None


def test_an_unmounted_storage_marks_no_checkpoint_as_damaged(store: TrackingStore, saved: Saved) -> None:
    saved(State.ERROR)
    base = place_of(store.checkpoint("1-1")).parent
    base.rename(base.with_name("elsewhere"))
    base.mkdir()
    with pytest.raises(NoCheckpoint, match="trained 3 batches, .*is the disk mounted"):
        find_start(store, store.trial(1))
    assert len(store.checkpoints(trial_id=1)) == 3
    assert find_start(store, store.trial(1), from_beginning=True).checkpoint is None
    assert store.checkpoints(trial_id=1) == []


def test_a_storage_that_does_not_respond_marks_no_checkpoint_as_damaged(
    store: TrackingStore, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: DirectoryStorage, storage_id: str) -> dict[str, int]:
        raise StorageError("connection reset")

    saved(State.ERROR)
    monkeypatch.setattr(DirectoryStorage, "list", refuse)
    assert find_start(store, store.trial(1)).checkpoint == store.checkpoint("1-3")
    assert len(store.checkpoints(trial_id=1)) == 3


def a_start(
    store: TrackingStore, source: ExperimentRecord, source_checkpoint: str | None = None, **searcher: Any
) -> Any:
    """Return the starting point of a new trial without checkpoints."""
    config = parse_config({**source.config, "searcher": {**source.config["searcher"], **searcher}}).dump()
    experiment = store.create_experiment(config=config)
    new = NewTrial(hparams={}, seed=0, source_checkpoint=source_checkpoint)
    (trial,) = store.record_search(experiment.id, [], [TrialUpdate(request_id=0, state=State.QUEUED, new=new)])
    return find_start(store, trial)


def test_a_warm_start_from_a_damaged_checkpoint_is_an_error_that_names_it(store: TrackingStore, saved: Saved) -> None:
    """The user chose the checkpoint to start from, so no other one takes its place."""
    source = saved(State.COMPLETED)
    assert a_start(store, source, source_trial_id=1).checkpoint.uuid == "1-3"
    store.fail_checkpoint("1-3", "w is missing")
    with pytest.raises(InvalidExperimentException, match=r"1-3.*damaged \(w is missing\).*source_checkpoint_uuid"):
        a_start(store, source, source_trial_id=1)
    with pytest.raises(InvalidExperimentException, match="checkpoint 1-3 is ERROR"):
        a_start(store, source, source_checkpoint_uuid="1-3")
    shutil.rmtree(place_of(store.checkpoint("1-2")))
    with pytest.raises(InvalidExperimentException, match="1-2.*is not in this experiment's checkpoint_storage"):
        a_start(store, source, source_checkpoint_uuid="1-2")
    assert a_start(store, source, source_checkpoint_uuid="1-1").checkpoint.uuid == "1-1"


def test_a_damaged_starting_point_of_a_search_falls_back_to_an_older_checkpoint(
    store: TrackingStore, saved: Saved
) -> None:
    source = saved(State.PAUSED)
    store.fail_checkpoint("1-2", "w is missing")
    start = a_start(store, source, source_checkpoint="1-2")
    assert start.checkpoint.uuid == "1-1"  # 1-3 is newer than 1-2
    assert ["1-2" in line and "w is missing" in line for line in start.warnings()] == [True]
    store.fail_checkpoint("1-1", "w is missing, too")
    with pytest.raises(InvalidExperimentException, match=r"checkpoint 1-2 of trial 1.*nor an older one"):
        a_start(store, source, source_checkpoint="1-2")


def test_a_missing_checkpoint_is_marked_as_damaged_if_another_one_exists(store: TrackingStore, saved: Saved) -> None:
    saved(State.PAUSED)
    shutil.rmtree(place_of(store.checkpoint("1-3")))
    start = find_start(store, store.trial(1))
    assert start.checkpoint.uuid == "1-2"
    assert [one.uuid for one in start.damaged] == ["1-3"]
    assert store.checkpoint("1-3").state is CheckpointState.ERROR
    assert find_start(store, store.trial(1)) == start  # another runner gets the same result


SCRIPT = """
import os, signal
from pathlib import Path
import det_core as det
from det_core import core
info = det.get_cluster_info()
with core.init() as context:
    steps = 0
    if info.latest_checkpoint:
        {restore}
    while steps < 4:
        steps += 1
        context.train.report_validation_metrics(steps, {{"loss": float(steps)}})
        with context.checkpoint.store_path({{"steps_completed": steps}}) as (path, storage_id):
            (path / "number").write_text(str(steps))
        if steps == 3 and not Path(os.environ["MARK"]).exists():
            Path(os.environ["MARK"]).touch()
            stored = Path(os.environ["STORE"], storage_id, "number")
            stored.chmod(0o600)
            stored.write_text("?")
            os.kill(os.getpid(), signal.SIGKILL)
"""
RESTORES = {
    "restore_path": """with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            steps = int((path / "number").read_text())""",
    "download": """context.checkpoint.download(info.latest_checkpoint, "back")
        steps = int(Path("back", "number").read_text())""",
}


@pytest.mark.integration
@pytest.mark.parametrize("restore", RESTORES)
def test_a_script_on_the_core_api_falls_back_to_an_intact_checkpoint(
    store: TrackingStore, context_dir: Path, tmp_path: Path, restore: str
) -> None:
    (context_dir / "train.py").write_text(SCRIPT.format(restore=RESTORES[restore]))
    config = {
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}},
        "environment": {"environment_variables": [f"MARK={tmp_path / 'mark'}", f"STORE={tmp_path / 'stored'}"]},
        "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "stored")},
        "max_restarts": 1,
    }
    experiment = submit_experiment(store, parse_config(config), context_dir)
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert (trial.restarts, trial.run_id) == (1, 3)
    assert [one.steps_completed for one in store.checkpoints(trial_id=trial.id, states=list(CheckpointState))] == [
        1, 2, 3, 3, 4,
    ]  # fmt: skip
    assert [one.steps_completed for one in store.checkpoints(trial_id=trial.id, states=[CheckpointState.ERROR])] == [3]
