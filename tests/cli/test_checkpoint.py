"""Checkpoints: listed, described, downloaded whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Det, Record


def test_list(det: Det, trained: Record) -> None:
    header, first, second = det("checkpoint", "list", 1).out.splitlines()
    assert header.split() == ["UUID", "TRIAL", "BATCH", "STATE", "SIZE", "TIME"]
    assert first.split()[:4] == ["best-one", "1", "200", "COMPLETED"]
    assert second.split()[:4] == ["last-one", "1", "300", "COMPLETED"]
    assert [one["uuid"] for one in det("c", "list", "--json").json] == ["best-one", "last-one"]


def test_describe(det: Det, trained: Record) -> None:
    path = str(trained.directory / "storage" / "best-one")
    out = det("checkpoint", "describe", "best-one").out
    assert path in out
    assert "weights" in out
    described = det("checkpoint", "describe", "best-one", "--json").json
    assert (described["path"], described["steps_completed"]) == (path, 200)


def test_download(det: Det, trained: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert det("checkpoint", "download", "best-one").code == 0
    assert (tmp_path / "checkpoints" / "best-one" / "weights").read_text() == "w"

    (tmp_path / "empty").mkdir()
    result = det("checkpoint", "download", "best-one", "-o", "empty", "--json")
    assert result.json == {"uuid": "best-one", "path": str(tmp_path / "empty")}
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["metadata.json", "weights"]


def test_a_used_directory_is_refused(det: Det, trained: Record, tmp_path: Path) -> None:
    target = tmp_path / "used"
    target.mkdir()
    (target / "mine").write_text("precious")
    for used in (target, target / "mine"):
        result = det("checkpoint", "download", "best-one", "-o", used)
        assert result.code == 1
        assert f"{used} exists" in result.err
    assert [path.name for path in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("damage", ["altered", "missing", "gone"])
def test_nothing_is_left_of_a_download_that_failed(det: Det, trained: Record, tmp_path: Path, damage: str) -> None:
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


def test_a_storage_whose_plugin_is_missing(det: Det, trained: Record) -> None:
    trained.store.begin_checkpoint("far", trial_id=1, run_id=1, storage={"type": "s3", "bucket": "b"})
    trained.store.complete_checkpoint("far", run_id=1, steps_completed=5, resources={}, metadata={})
    assert "bucket b" in det("checkpoint", "describe", "far").out
    result = det("checkpoint", "download", "far")
    assert (result.code, "pip install det-storage-s3" in result.err) == (1, True)
