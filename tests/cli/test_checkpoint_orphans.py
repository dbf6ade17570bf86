"""``det checkpoint gc --orphans``, which removes only files that killed runs left."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from det_core.interfaces.records import CheckpointState, State
from det_core.package_commands import package_command

from .conftest import Det, Record


def begin(record: Record, *, complete: bool = False, run_id: int | None = None) -> Path:
    """Write an ACTIVE checkpoint and return its directory. If ``complete``, the directory has a metadata.json."""
    storage_id, base = str(uuid.uuid4()), record.directory / "storage"
    block = {"type": "directory", "container_path": str(base)}
    record.store.begin_checkpoint(storage_id, trial_id=record.trial.id, run_id=run_id or record.run_id, storage=block)
    return remains(base / storage_id, "w", *(["metadata.json"] if complete else []))


def remains(directory: Path, *names: str, hours_ago: float = 0) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("12345")
    then = time.time() - hours_ago * 3600
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (then, then))
    return directory


def state(record: Record, directory: Path) -> CheckpointState:
    return record.store.checkpoint(directory.name).state


def test_files_of_a_live_run_are_kept(det: Det, record: Record) -> None:
    record.store.acquire_lease(record.experiment.id, "host:1:1:x", seconds=60)
    writing = begin(record)
    result = det("checkpoint", "gc", "--orphans", "--older-than", "0s")
    assert (result.code, result.out) == (0, "Removed 0 orphans.\n")
    assert (writing / "w").exists()
    assert state(record, writing) is CheckpointState.ACTIVE


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("why", ["replaced", "COMPLETED"])
def test_files_of_a_dead_run_are_removed_regardless_of_age(det: Det, record: Record, why: str, complete: bool) -> None:
    left = begin(record, complete=complete)
    if why == "replaced":
        record.store.start_run(record.trial.id, allocation_id="second")
    else:
        record.end(State.COMPLETED)
    shown = det("checkpoint", "gc", "--orphans", "--dry-run", "--json").json
    assert [(one["uuid"], one["size"]) for one in shown["orphans"]] == [(left.name, 10 if complete else 5)]
    assert why in shown["orphans"][0]["reason"]
    assert left.exists()
    result = det("checkpoint", "gc", "--orphans")
    assert left.name in result.out
    assert result.out.endswith(f"Removed 1 orphan, {'10' if complete else '5'} B.\n")
    assert not left.exists()
    assert state(record, left) is CheckpointState.DELETED
    assert det("checkpoint", "gc", "--orphans", "--json").json == {"dry_run": False, "orphans": [], "problems": []}


def test_files_of_an_experiment_without_a_runner_are_removed_by_age(det: Det, record: Record) -> None:
    left = begin(record)
    assert det("checkpoint", "gc", "--orphans").out == "Removed 0 orphans.\n"
    assert det("checkpoint", "gc", "--orphans", "--older-than", "0s").code == 0
    assert not left.exists()
    assert state(record, left) is CheckpointState.DELETED


def test_unrecorded_files_are_removed_only_if_old_incomplete_and_ours(det: Det, trained: Record) -> None:
    base = trained.directory / "storage"
    old = remains(base / str(uuid.uuid4()), "sub/w", hours_ago=25)
    kept = [
        remains(base / str(uuid.uuid4()), "w", hours_ago=23),
        remains(base / str(uuid.uuid4()), "w", "metadata.json", hours_ago=99),
        remains(base / str(uuid.uuid4()), "tensorboard/experiment/1/events", hours_ago=99),
        remains(base / "datasets", "precious", hours_ago=99),
        base / "best-one",
    ]
    result = det("checkpoint", "gc", "--orphans", "--json")
    assert [(one["uuid"], one["reason"]) for one in result.json["orphans"]] == [
        (old.name, "incomplete and not recorded")
    ]
    assert not old.exists()
    assert all(any(path.is_file() for path in directory.rglob("*")) for directory in kept)


def test_files_of_a_deleted_checkpoint_are_removed(det: Det, trained: Record) -> None:
    trained.store.delete_checkpoint("best-one")
    det("checkpoint", "gc", "--orphans")
    assert [path.name for path in (trained.directory / "storage").iterdir()] == ["last-one"]


def test_a_checkpoint_that_is_completed_during_the_removal_is_kept(
    det: Det, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = begin(record, complete=True)
    delete = record.store.delete_checkpoint

    def late(*args: object, **kwargs: object) -> bool:
        record.store.complete_checkpoint(left.name, run_id=1, steps_completed=1, resources={"w": 5}, metadata={})
        return delete(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(
        "det_core.tracking._sql_store.SqlTrackingStore.delete_checkpoint", lambda _, *a, **k: late(*a, **k)
    )
    assert det("checkpoint", "gc", "--orphans", "--older-than", "0s").out == "Removed 0 orphans.\n"
    assert (left / "w").exists()


@pytest.mark.usefixtures("only_det_core")
def test_a_storage_that_cannot_be_searched_is_reported(det: Det, trained: Record) -> None:
    trained.store.create_experiment(config={"checkpoint_storage": {"type": "s3", "bucket": "b"}})
    result = det("checkpoint", "gc", "--orphans", "--older-than", "0s")
    assert result.code == 1
    assert package_command("install", "det-storage-s3") in result.err


@pytest.mark.parametrize("argv", [(), ("--orphans", "--older-than", "yesterday")])
def test_wrong_arguments_are_rejected(det: Det, trained: Record, argv: tuple[str, ...]) -> None:
    assert det("checkpoint", "gc", *argv).code == 2
