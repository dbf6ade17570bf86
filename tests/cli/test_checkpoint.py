"""The ``det checkpoint`` commands."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from det_core.cli.commands._download import show_transfer
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.errors import StorageError
from det_core.home import private_directory
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.secrets import REFERENCE_PREFIX
from det_core.interfaces.tracking import TrackingStore
from det_core.package_commands import package_command
from det_core.storage.directory import DirectoryStorage
from det_core.tracking import _lease
from det_core.tracking._schema import experiments
from det_core.tracking.secret_files import write_secret

from ..waiting import wait_for
from .conftest import Det, Record


def test_list_has_a_row_for_each_checkpoint(det: Det, trained: Record) -> None:
    header, first, second = det("checkpoint", "list", 1).out.splitlines()
    assert header.split() == ["UUID", "TRIAL", "BATCH", "STATE", "SIZE", "TIME"]
    assert first.split()[:4] == ["best-one", "1", "200", "COMPLETED"]
    assert second.split()[:4] == ["last-one", "1", "300", "COMPLETED"]
    assert [one["uuid"] for one in det("c", "list", "--json").json] == ["best-one", "last-one"]


def test_describe_shows_the_path_and_the_files(det: Det, trained: Record) -> None:
    path = str(trained.directory / "storage" / "best-one")
    out = det("checkpoint", "describe", "best-one").out
    assert path in out
    assert "weights" in out
    described = det("checkpoint", "describe", "best-one", "--json").json
    assert (described["path"], described["steps_completed"]) == (path, 200)


def test_download_creates_or_fills_the_directory(
    det: Det, trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert det("checkpoint", "download", "best-one").code == 0
    assert (tmp_path / "checkpoints" / "best-one" / "weights").read_text() == "w"

    (tmp_path / "empty").mkdir()
    result = det("checkpoint", "download", "best-one", "-o", "empty", "--json")
    assert result.json == {"uuid": "best-one", "path": str(tmp_path / "empty")}
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["metadata.json", "weights"]


def test_a_directory_with_files_is_rejected(det: Det, trained: Record, tmp_path: Path) -> None:
    target = tmp_path / "used"
    target.mkdir()
    (target / "mine").write_text("precious")
    for used in (target, target / "mine"):
        result = det("checkpoint", "download", "best-one", "-o", used)
        assert result.code == 1
        assert f"{used} exists" in result.err
    assert [path.name for path in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("damage", ["altered", "missing", "gone"])
def test_a_failed_download_leaves_nothing(det: Det, trained: Record, tmp_path: Path, damage: str) -> None:
    stored = tmp_path / "storage" / "best-one"
    if damage == "altered":
        (stored / "weights").write_text("v")
    elif damage == "missing":
        (stored / "weights").unlink()
    else:
        (stored / "metadata.json").unlink()
    before = sorted(tmp_path.iterdir())
    result = det("checkpoint", "download", "best-one", "-o", tmp_path / "new" / "target")
    assert result.code == 1
    assert "best-one" in result.err
    assert sorted(tmp_path.iterdir()) == before


def test_only_complete_checkpoints_are_downloaded(det: Det, trained: Record) -> None:
    trained.store.delete_checkpoint("best-one")
    assert "DELETED" in det("checkpoint", "download", "best-one").err


@pytest.mark.usefixtures("only_det_core")
def test_a_missing_storage_plugin_is_named(det: Det, trained: Record) -> None:
    trained.store.begin_checkpoint("far", trial_id=1, run_id=1, storage={"type": "s3", "bucket": "b"})
    trained.store.complete_checkpoint("far", run_id=1, steps_completed=5, resources={}, metadata={})
    assert "bucket b" in det("checkpoint", "describe", "far").out
    result = det("checkpoint", "download", "far")
    assert (result.code, package_command("install", "det-storage-s3") in result.err) == (1, True)


def resources(record: Record, uuid: str) -> tuple[CheckpointState, set[str]]:
    row = record.store.checkpoint(uuid)
    return row.state, set(row.resources)


def test_rm_deletes_checkpoints_and_their_files(det: Det, trained: Record) -> None:
    result = det("checkpoint", "rm", "best-one", "last-one", "best-one", "--yes")
    assert (result.code, result.out) == (0, "Checkpoint best-one: nothing left\nCheckpoint last-one: nothing left\n")
    assert list((trained.directory / "storage").iterdir()) == []
    assert resources(trained, "best-one") == resources(trained, "last-one") == (CheckpointState.DELETED, set())
    assert det("c", "list").out == "No checkpoints.\n"
    assert det("checkpoint", "rm", "best-one", "-y", "--json").json == [{"uuid": "best-one", "resources": {}}]


def test_rm_with_globs_removes_matching_files_only(det: Det, trained: Record, tmp_path: Path) -> None:
    trained.checkpoint("more", 400, {"weights": "w", "a.opt": "12345", "b.opt": ""})
    result = det("checkpoint", "rm", "more", "--glob", "a*", "--glob", "b*", "--yes")
    stored = tmp_path / "storage" / "more"
    left = {path.name: path.stat().st_size for path in stored.iterdir()}
    assert left.keys() == {"weights", "metadata.json"}
    assert (result.code, result.out) == (0, f"Checkpoint more: 2 files, {sum(left.values())} B left\n")
    assert resources(trained, "more") == (CheckpointState.PARTIALLY_DELETED, set(left))
    assert "PARTIALLY_DELETED" in det("c", "list").out
    assert [one.uuid for one in trained.store.checkpoints()] == ["best-one", "last-one"]  # no run starts from it
    assert det("checkpoint", "download", "more", "-o", tmp_path / "back").code == 0
    assert (tmp_path / "back" / "weights").read_text() == "w"
    assert det("checkpoint", "rm", "more", "--yes").code == 0
    assert resources(trained, "more") == (CheckpointState.DELETED, set())
    assert det("checkpoint", "rm", "more", "--glob", "a*", "--yes").code == 0
    assert resources(trained, "more") == (CheckpointState.DELETED, set())


def test_rm_checks_all_checkpoints_before_it_removes_any(det: Det, trained: Record) -> None:
    trained.store.begin_checkpoint("busy", trial_id=1, run_id=1, storage={})
    for wrong, message in (("nonsense", "no checkpoint nonsense"), ("busy", "is being written")):
        result = det("checkpoint", "rm", "best-one", wrong, "--yes")
        assert (result.code, message in result.err) == (1, True)
    result = det("checkpoint", "rm", "best-one", "--glob", "nothing", "--glob", "*.json", "--yes")
    assert (result.code, "matches nothing *.json; to list its files" in result.err) == (1, True)
    assert resources(trained, "best-one")[0] is CheckpointState.COMPLETED


def test_rm_rejects_the_latest_checkpoint_of_a_running_trial(det: Det, trained: Record) -> None:
    trained.store.acquire_lease(1, "host:1:1:x", seconds=60)
    result = det("checkpoint", "rm", "last-one", "--yes")
    assert (result.code, "det experiment pause 1" in result.err) == (1, True)
    assert det("checkpoint", "rm", "best-one", "--yes").code == 0


def test_rm_keeps_checkpoints_of_an_experiment_resumed_before_the_answer(
    det: Det, trained: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An experiment that is resumed before the question is answered keeps its latest checkpoint."""

    def resumed(*arguments: object, **options: object) -> bool:
        trained.store.acquire_lease(1, "host:1:1:x", seconds=60)
        return True

    monkeypatch.setattr("det_core.cli.commands._checkpoint_removal.confirm_removal", resumed)
    result = det("checkpoint", "rm", "best-one", "last-one")
    assert (result.code, "host:1:1:x" in result.err) == (1, True)
    assert resources(trained, "best-one")[0] is resources(trained, "last-one")[0] is CheckpointState.COMPLETED


def test_rm_stops_if_a_runner_takes_over_the_experiment(
    det: Det, trained: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(store: TrackingStore, checkpoint: CheckpointRecord, *arguments: Any, **more: Any) -> dict[str, int]:
        left = remove_checkpoint(store, checkpoint, *arguments, **more)
        with store._database.write() as connection:  # type: ignore[attr-defined]  # in one step
            connection.execute(update(experiments).values(lease_holder="host:1:1:x"))
        wait_for(lambda: all(thread.name != "det-lease" or thread in before for thread in threading.enumerate()))
        return left

    before = threading.enumerate()
    monkeypatch.setattr(_lease, "_RENEW_EVERY", 0.01)
    monkeypatch.setattr("det_core.runner._checkpoint_deletion.remove_checkpoint", remove)
    result = det("checkpoint", "rm", "best-one", "last-one", "--yes")
    assert (result.code, "host:1:1:x" in result.err) == (1, True)
    assert resources(trained, "best-one")[0] is CheckpointState.DELETED
    assert resources(trained, "last-one")[0] is CheckpointState.COMPLETED


def test_rm_asks_for_confirmation(det: Det, trained: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    trained.store.add_trial_source(1, 1, "best-one")
    result = det("checkpoint", "rm", "best-one")
    assert (result.code, "--yes" in result.err) == (2, True)
    for answer, state in (("", CheckpointState.COMPLETED), ("n", CheckpointState.COMPLETED)):
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        result = det("checkpoint", "rm", "best-one", "last-one")
        assert (result.code, resources(trained, "best-one")[0]) == (1, state)
        assert "best-one: batch 200 of trial 1; used by trial 1\n" in result.out
        assert "last-one: batch 300 of trial 1; the checkpoint from which its trial continues\n" in result.out
        assert "Permanently remove all files of 2 checkpoints?" in result.out
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert det("checkpoint", "rm", "best-one").code == 0
    assert resources(trained, "best-one")[0] is CheckpointState.DELETED


def test_gc_finishes_a_failed_rm(det: Det, trained: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(DirectoryStorage, "delete", refuse)
        assert "no permission" in det("checkpoint", "rm", "best-one", "--yes").err
        assert "no permission" in det("checkpoint", "rm", "last-one", "--glob", "w*", "--yes").err
    assert resources(trained, "best-one") == (CheckpointState.DELETED, set())
    assert resources(trained, "last-one") == (CheckpointState.PARTIALLY_DELETED, {"weights", "metadata.json"})
    det("checkpoint", "gc", "--orphans")
    assert [path.name for path in (trained.directory / "storage").iterdir()] == ["last-one"]
    assert det("checkpoint", "rm", "last-one", "--glob", "w*", "--yes").code == 0
    assert resources(trained, "last-one") == (CheckpointState.PARTIALLY_DELETED, {"metadata.json"})


@pytest.fixture
def documents(trained: Record) -> Path:
    """Record files of this user as a checkpoint, as whoever reports as a worker may, and return their directory."""
    directory = trained.directory / "home" / "documents"
    directory.mkdir(parents=True)
    (directory / "letter").touch()
    block = {"type": "directory", "container_path": str(directory.parent)}
    trained.store.begin_checkpoint("documents", trial_id=1, run_id=1, storage=block)
    trained.store.complete_checkpoint(
        "documents", run_id=1, steps_completed=5, resources={"letter": 0, "metadata.json": 1}, metadata={}
    )
    trained.checkpoint("newest", 400)
    return directory


def test_only_who_names_a_checkpoint_deletes_it_where_the_config_does_not(
    det: Det, trained: Record, documents: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"in type directory, container_path {documents.parent}, which the config of its experiment does not name"
    for command in (("checkpoint", "gc", 1), ("experiment", "delete", 1, "--yes")):
        result = det(*command)
        assert (result.code, f"documents is {other}" in result.err) == (1, True), result
        assert (documents / "letter").exists()
    assert det("checkpoint", "rm", "documents", "--yes").code == 0
    assert f"documents is {other}" in caplog.text
    assert not documents.exists()
    assert det("experiment", "delete", 1, "--yes").code == 0


def test_a_record_gets_no_secret_that_its_config_does_not_have(det: Det, trained: Record, tmp_path: Path) -> None:
    write_secret(private_directory("secrets") / f"{'0' * 32}-{'0' * 32}", "the-secret")
    block = {"type": "directory", "container_path": f"{tmp_path}/{REFERENCE_PREFIX}{'0' * 32}"}
    trained.store.begin_checkpoint("curious", trial_id=1, run_id=1, storage=block)
    trained.store.complete_checkpoint("curious", run_id=1, steps_completed=5, resources={}, metadata={})
    for command in ("describe", "download"):
        result = det("checkpoint", command, "curious")
        assert "the-secret" not in result.out + result.err
    assert (result.code, "checkpoint_storage.container_path is not in" in result.err) == (1, True)


def refuse(*_: object) -> None:
    raise StorageError("no permission")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(
    det: Det, trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert det("checkpoint", "download", "best-one", "-o", tmp_path / "quiet").err == ""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with show_transfer(2000) as moved:
        assert moved
        moved(500)
    *_, line, end = terminal.getvalue().split("\r\x1b[K")
    assert (line, end) == ("500 B of 2 kB", "")
    assert det("checkpoint", "download", "best-one", "-o", tmp_path / "told").code == 0
    assert "1 B of 1 B" in terminal.getvalue()


def test_a_closed_terminal_does_not_stop_a_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line raised an OSError in the transferring thread, so the download failed."""
    master, slave = os.openpty()
    stream = io.TextIOWrapper(io.FileIO(slave, "w"), write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr("sys.stderr", stream)
    with show_transfer(2000) as moved:
        assert moved
        os.close(master)
        moved(500)
        moved(500)
    stream.detach().close()
