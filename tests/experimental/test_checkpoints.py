"""Checkpoints of experiments and trials, with ranking, selection, download, metadata and loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from det_core import storage
from det_core.core import open_storage_block
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, DetError, InvalidTrial, NoCheckpoint, RecordNotFound
from det_core.experimental import Checkpoint, Determined, ExperimentReference, TrialReference
from det_core.interfaces.records import CheckpointState

from ..cli.conftest import Record

NAN = float("nan")


@pytest.fixture
def experiment(trained: Record) -> ExperimentReference:
    return Determined().get_experiment(1)


@pytest.fixture
def trial(trained: Record) -> TrialReference:
    return Determined().get_trial(1)


def another_trial(record: Record, **validations: float) -> None:
    """Return a new trial with one checkpoint per value, at ascending batches."""
    created = record.store.create_trial(1, hparams={"lr": 1}, seed=1)
    record.store.start_run(created.id, allocation_id="")
    other = Record(record.store, record.experiment, created, record.directory)
    for step, (uuid, accuracy) in enumerate(validations.items(), 1):
        other.report(step, "validation", accuracy=accuracy, loss=step)
        other.checkpoint(uuid, step)


def test_a_checkpoint_has_the_recorded_attributes(experiment: ExperimentReference) -> None:
    best = experiment.top_checkpoint()
    assert (best.uuid, best.trial_id, best.experiment_id, best.batch_number) == ("best-one", 1, 1, 200)
    assert (best.hparams["nested"], best.experiment_config["name"]) == ({"depth": 2}, "digits")
    assert best.resources.keys() == {"weights", "metadata.json"}
    assert best.validation == {"metrics": {"validationMetrics": {"accuracy": 0.75}}, "state": "COMPLETED"}
    assert (best.model_name, best.model_version, best.start_time) == (None, None, best.end_time)
    assert [one.uuid for one in experiment.list_checkpoints()] == ["best-one", "last-one"]


def test_top_n_checkpoints_are_the_best_of_distinct_trials(trained: Record, experiment: ExperimentReference) -> None:
    another_trial(trained, a=0.7, b=0.9, c=NAN)
    another_trial(trained, d=float("inf"), e=0.1)
    another_trial(trained, f=NAN)
    assert [one.uuid for one in experiment.top_n_checkpoints(9)] == ["b", "best-one", "e"]
    assert [one.uuid for one in experiment.top_n_checkpoints(2)] == ["b", "best-one"]
    worst = experiment.top_n_checkpoints(2, sort_by="accuracy", smaller_is_better=True)
    assert [one.uuid for one in worst] == ["e", "last-one"]
    assert experiment.top_checkpoint(smaller_is_better=True).uuid == "b"  # smaller_is_better is ignored without sort_by
    assert experiment.top_checkpoint(sort_by="accuracy").uuid == "b"
    assert experiment.top_checkpoint(sort_by="loss", smaller_is_better=True).uuid == "a"
    with pytest.warns(UserWarning, match="larger values of 'loss' are assumed to be better.*'accuracy'") as caught:
        assert experiment.top_checkpoint(sort_by="loss").uuid == "c"
    assert caught[0].filename == __file__


def test_the_oldest_of_equal_checkpoints_is_the_best(trained: Record, trial: TrialReference) -> None:
    trained.report(400, "validation", accuracy=0.75)
    trained.checkpoint("late", 400)
    assert trial.top_checkpoint().uuid == "best-one"


def test_no_matching_checkpoint_is_an_error(trained: Record, experiment: ExperimentReference) -> None:
    with pytest.raises(NoCheckpoint, match="experiment 1 has no checkpoint .* finite 'f1'.*accuracy") as caught:
        experiment.top_checkpoint(sort_by="f1", smaller_is_better=False)
    assert isinstance(caught.value, AssertionError)
    for uuid in ("best-one", "last-one"):
        trained.store.delete_checkpoint(uuid)
    with pytest.raises(NoCheckpoint, match="0 completed checkpoints"):
        experiment.top_n_checkpoints(3)
    with pytest.raises(NoCheckpoint, match="trial 1 has no completed checkpoint"):
        Determined().get_trial(1).select_checkpoint(latest=True)
    with pytest.raises(ValueError, match="limit is 0"):
        experiment.top_n_checkpoints(0)


def test_checkpoints_are_selected_by_latest_best_and_uuid(trained: Record, trial: TrialReference) -> None:
    another_trial(trained, a=0.9)
    assert trial.select_checkpoint(latest=True).uuid == "last-one"
    assert trial.select_checkpoint(best=True).uuid == trial.top_checkpoint().uuid == "best-one"
    assert trial.select_checkpoint(best=True, sort_by="accuracy", smaller_is_better=True).uuid == "last-one"
    # Each of the two arguments may be given without the other.
    assert trial.top_checkpoint(sort_by="accuracy").uuid == trial.top_checkpoint().uuid
    assert trial.top_checkpoint(smaller_is_better=True).uuid == trial.top_checkpoint().uuid
    assert trial.select_checkpoint(uuid="best-one").uuid == "best-one"
    with pytest.raises(NoCheckpoint, match="belongs to trial 2, not to trial 1"):
        trial.select_checkpoint(uuid="a")
    with pytest.raises(NoCheckpoint, match="no checkpoint z"):
        trial.select_checkpoint(uuid="z")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of .*; got none"),
        ({"latest": True, "best": True}, r"got \['latest', 'best'\]"),
        ({"best": True, "uuid": "a"}, "exactly one"),
        ({"latest": True, "sort_by": "accuracy", "smaller_is_better": True}, "sort_by requires best=True, but latest"),
    ],
)
def test_contradictory_selections_are_errors(trial: TrialReference, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trial.select_checkpoint(**arguments)  # type: ignore[arg-type]


def test_a_download_goes_to_a_new_or_empty_directory(experiment: ExperimentReference, trained: Record) -> None:
    best = experiment.top_checkpoint()
    path = Path(best.download())
    assert (path, (path / "weights").read_text()) == (Path("checkpoints/best-one"), "w")
    assert best.download() == str(path)
    (path / "weights").write_text("mine")
    best.add_metadata({"tag": 1})
    assert best.download(str(path)) == str(path)
    assert ((path / "weights").read_text(), json.loads((path / "metadata.json").read_text())["tag"]) == ("mine", 1)
    with pytest.raises(DetError, match="holds checkpoint best-one, not last-one"):
        experiment.list_checkpoints()[1].download(str(path))
    used = Path("used")
    used.mkdir()
    (used / "metadata.json").write_text("{}")
    with pytest.raises(DetError, match="used exists and is not an empty directory"):
        best.download("used")
    trained.store.delete_checkpoint("best-one")
    with pytest.raises(DetError, match="DELETED"):
        best.download("new")


def test_a_download_leaves_links_and_the_working_directory_in_place(
    experiment: ExperimentReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = experiment.top_checkpoint()
    for name in ("here", "linked"):
        Path(name).mkdir()
    Path("link").symlink_to("linked")
    Path("broken").symlink_to("missing")
    monkeypatch.chdir("here")
    for target, place in ((".", "."), ("../link", "../linked"), ("../broken", "../missing")):
        best.download(target)
        assert {path.name for path in Path(place).iterdir()} == {"metadata.json", "weights"}
    assert Path("../link").is_symlink() and Path("../broken").is_symlink()
    assert Path.cwd().samefile("../here")


def test_metadata_is_edited_in_the_store_and_included_in_downloads(trained: Record) -> None:
    one, same = (Determined().get_checkpoint("best-one") for _ in range(2))
    one.add_metadata({"stage": "production", "by": "ada"})
    same.add_metadata({"stage": "trial"})
    one.remove_metadata(["by", "nothing"])
    assert one.metadata == {"steps_completed": 200, "stage": "trial"}
    written = json.loads(Path(one.download(), "metadata.json").read_text())
    assert (written.pop("_det")["uuid"], written) == ("best-one", one.metadata)
    stored = storage.read_checkpoint_metadata(
        open_storage_block(trained.store.checkpoint("best-one").storage), "best-one"
    )
    assert stored == {"steps_completed": 200}
    with pytest.raises(TypeError, match="'x'"):
        one.add_metadata({"x": object()})
    assert trained.store.checkpoint("best-one").state is CheckpointState.COMPLETED


def test_a_downloaded_copy_is_still_verified_and_restored_elsewhere(trained: Record, tmp_path: Path) -> None:
    path = Path(Determined().get_checkpoint("best-one").download())
    block = {"type": "directory", "container_path": str(path.parent.absolute())}
    storage.restore_checkpoint(open_storage_block(block), "best-one", tmp_path / "again")
    assert (tmp_path / "again" / "weights").read_text() == "w"


def saved(path: Path, metadata: dict[str, object], **files: dict[str, object]) -> str:
    path.mkdir()
    for name, content in {"metadata": metadata, "toy": {"weight": 0.5}, **files}.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("metadata", "files"),
    [
        ({"trial_framework": "toy"}, {}),
        ({"framework": "toy-0.1"}, {}),
        ({"framework": "other-0.1", "format": "brittle"}, {}),
        ({"framework": "other-0.1", "format": "h5"}, {"load_data": {"trial_type": "OldToy"}}),
    ],
)
def test_load_calls_the_framework_that_saved_the_checkpoint(
    tmp_path: Path, metadata: dict[str, object], files: dict[str, dict[str, object]]
) -> None:
    path = saved(tmp_path / "c", metadata, **files)
    assert Checkpoint.load_from_path(path) == {"weight": 0.5, "tags": None}
    assert Checkpoint.load_from_path(path, ["serve"], trust=True) == {"weight": 0.5, "tags": ["serve"], "trust": True}


@pytest.mark.parametrize("file", [storage.METADATA_FILE, "load_data.json"])
@pytest.mark.parametrize("content", ["[]", "{", "null", "7", "\0", "[" * 100_000])
def test_damaged_metadata_of_a_checkpoint_is_an_error(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / storage.METADATA_FILE).write_text("{}")
    (tmp_path / file).write_text(content)
    with pytest.raises(CheckpointCorrupt, match=f"{file} is damaged"):
        Checkpoint.load_from_path(str(tmp_path))


def test_load_reports_a_missing_checkpoint_or_framework(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="det checkpoint download"):
        Checkpoint.load_from_path(str(tmp_path))
    with pytest.raises(InvalidTrial, match="a checkpoint of 'haiku' .*toy"):
        Checkpoint.load_from_path(saved(tmp_path / "c", {"trial_framework": "haiku"}))
    with pytest.raises(InvalidTrial, match="a checkpoint of None"):
        Checkpoint.load_from_path(saved(tmp_path / "d", {}))


def test_references_can_be_constructed_from_ids(
    trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = trained.store.url
    assert ExperimentReference(1, url).top_checkpoint().uuid == "best-one"
    assert TrialReference(1, "").top_checkpoint().uuid == "best-one"
    monkeypatch.setenv("DET_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("DET_MASTER_ADDR", url)
    assert Determined().get_checkpoint("best-one").trial_id == 1
    monkeypatch.setenv("DET_MASTER", "http://master:8080")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(DetError, match="http://master:8080 would send your token over the network without encryption"):
        Determined()


def test_unknown_ids_are_errors() -> None:
    det = Determined()
    for ask in (lambda: det.get_experiment(9), lambda: det.get_trial(9), lambda: det.get_checkpoint("z")):
        with pytest.raises(RecordNotFound):
            ask()
