"""Complete and partial deletion of checkpoints, which leaves no incomplete checkpoint visible when interrupted."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from det_core import storage
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.ignore_patterns import pattern_matcher
from det_core.interfaces.storage import StorageManager
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage

from .memory import MemoryBucket

FILES = {
    "state.pth": b"weights",
    "best.pth": b"best",
    "a b.bin": b"",
    "optimizer/state.pth": b"moments",
    "optimizer/deep/x": b"xx",
}
WHOLE = {**{name: len(content) for name, content in FILES.items()}, "logs/": 0}


class Killed(BaseException):
    """Interruption like SIGKILL, which no code handles."""


class Dying(StorageManager):
    """Store that raises Killed after a number of writes. Each put and each path of a delete is a write."""

    def __init__(self, store: StorageManager, writes: int) -> None:
        self.store, self.left, self.deletes = store, writes, 0

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        self._write()
        return self.store.put(storage_id, path, source)

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        return self.store.get(storage_id, path, target)

    def list(self, storage_id: str) -> dict[str, int]:
        return self.store.list(storage_id)

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        self.deletes += 1
        for path in paths:
            self._write()
            self.store.delete(storage_id, [path])

    def stored(self) -> dict[str, datetime]:
        return self.store.stored()

    def _write(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    for name, content in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    (directory / "logs").mkdir()
    return directory


def save(store: StorageManager, source: Path) -> None:
    storage.save_checkpoint(store, "c1", storage.scan_directory(source), {"steps_completed": 3})
    storage.save_checkpoint(store, "c10", storage.scan_directory(source), {"steps_completed": 4})


def restored(store: StorageManager, directory: Path) -> set[str]:
    """Restore the checkpoint, check the contents of its files, and return their paths."""
    storage.restore_checkpoint(store, "c1", directory)
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    assert files.pop(storage.METADATA_FILE)
    assert all(path.read_bytes() == FILES[name] for name, path in files.items())
    return {*files, *(["logs/"] if (directory / "logs").is_dir() else [])}


def listed(store: StorageManager) -> set[str]:
    """Return the paths of the files and empty directories that the checkpoint lists."""
    return {*storage.find_checkpoint(store, "c1").names()} - INNER


INNER = {"optimizer/", "optimizer/deep/"}
PATTERNS = [
    (["*.pth"], {"a b.bin", "optimizer/deep/x", "logs/"}),
    (["/*.pth"], {"a b.bin", "optimizer/state.pth", "optimizer/deep/x", "logs/"}),
    (["optimizer/"], {"state.pth", "best.pth", "a b.bin", "logs/"}),
    (["optimizer/**"], {"state.pth", "best.pth", "a b.bin", "logs/"}),
    (["*.pth", "!best.pth"], {"best.pth", "a b.bin", "optimizer/deep/x", "logs/"}),
    (["a b.bin", "logs/"], {"state.pth", "best.pth", "optimizer/state.pth", "optimizer/deep/x"}),
    (["**/x", "?est.pth"], {"state.pth", "a b.bin", "optimizer/state.pth", "logs/"}),
    (["**/*", "!state.pth"], {"state.pth", "optimizer/state.pth"}),
    (["nothing"], set(WHOLE)),
    ([], set(WHOLE)),
    (["*.json"], set(WHOLE)),
    (["**/*", "!metadata.json"], set()),
]


@pytest.mark.parametrize(("globs", "expected"), PATTERNS)
def test_matching_files_are_deleted_and_the_rest_is_restored(
    store: DirectoryStorage, source: Path, tmp_path: Path, globs: list[str], expected: set[str]
) -> None:
    save(store, source)
    left = storage.delete_stored_files(store, "c1", globs)
    files = {name: size for name, size in left.items() if name not in INNER}
    assert files == store.list("c1")
    assert files == {**{name: WHOLE[name] for name in expected}, storage.METADATA_FILE: left[storage.METADATA_FILE]}
    assert ("optimizer/" in left) == (not pattern_matcher(globs)("optimizer/"))
    assert restored(store, tmp_path / "back") == expected
    assert storage.read_checkpoint_metadata(store, "c1") == {"steps_completed": 3}
    assert storage.delete_stored_files(store, "c1", globs) == left
    assert store.list("c10").keys() == {*WHOLE, storage.METADATA_FILE}


@pytest.mark.parametrize("globs", [["**/*"], ["**"], ["*"], ["/**/"[:-1], "*.pth"]])
def test_patterns_that_match_all_files_delete_the_checkpoint_at_once(
    store: DirectoryStorage, base: Path, source: Path, globs: list[str]
) -> None:
    save(store, source)
    dying = Dying(store, 100)
    assert storage.delete_stored_files(dying, "c1", globs) == {}
    assert dying.deletes == 1
    assert [path.name for path in base.iterdir()] == ["c10"]
    assert storage.delete_stored_files(store, "c1", globs) == {}


@pytest.mark.parametrize("globs", [["**/*"], ["*.pth"], ["optimizer/", "logs/"]])
def test_a_kill_at_any_write_leaves_no_incomplete_checkpoint(source: Path, tmp_path: Path, globs: list[str]) -> None:
    for writes in range(100):
        store = DirectoryStorage(DirectoryConfig(container_path=tmp_path / str(writes)))
        save(store, source)
        before = dict(store.list("c1"))
        try:
            storage.delete_stored_files(Dying(store, writes), "c1", globs)
        except Killed:
            died = True
        else:
            died = False
        if globs == ["**/*"] and writes:
            with pytest.raises(CheckpointNotFound):
                storage.find_checkpoint(store, "c1")
        else:
            assert restored(store, tmp_path / f"back-{writes}") == listed(store) <= before.keys()
        if not died:
            break
        left = storage.delete_stored_files(store, "c1", globs)  # repeated without interruption
        assert left.keys() - INNER == store.list("c1").keys()
        assert not left or restored(store, tmp_path / f"again-{writes}") == listed(store)
    assert writes > 2


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("globs", [["**/*"], ["*.pth"]])
@pytest.mark.integration
def test_a_kill_at_any_request_leaves_no_incomplete_checkpoint_in_an_object_store(
    source: Path, tmp_path: Path, globs: list[str], moment: str
) -> None:
    for writes in range(100):
        bucket = MemoryBucket()
        store = storage.ObjectStorage(bucket, "p")
        save(store, source)
        left = itertools.count(writes, -1)

        def die(method: str, key: str, left: Iterator[int] = left) -> None:
            if method not in ("get", "list", "unfinished") and next(left) == 0:
                raise Killed

        setattr(bucket, moment, die)
        try:
            storage.delete_stored_files(store, "c1", globs)
        except Killed:
            died = True
        else:
            died = False
        setattr(bucket, moment, lambda method, key: None)
        if globs == ["**/*"] and (writes or moment == "after"):
            with pytest.raises(CheckpointNotFound):
                storage.find_checkpoint(store, "c1")
        else:
            assert restored(store, tmp_path / f"back-{writes}") == listed(store)
        assert store.list("c10").keys() == {*WHOLE, storage.METADATA_FILE}
        if not died:
            break
        assert storage.delete_stored_files(store, "c1", globs).keys() - INNER == store.list("c1").keys()
    assert writes > 1


def test_files_that_were_already_lost_are_removed_from_the_manifest(
    store: DirectoryStorage, base: Path, source: Path, tmp_path: Path
) -> None:
    save(store, source)
    (base / "c1" / "best.pth").unlink()
    storage.delete_stored_files(store, "c1", ["*.pth"])
    assert restored(store, tmp_path / "back") == {"a b.bin", "optimizer/deep/x", "logs/"}


def test_remains_without_metadata_json_are_deleted(store: DirectoryStorage, source: Path) -> None:
    save(store, source)
    store.delete("c1", [storage.METADATA_FILE])
    assert storage.delete_stored_files(store, "c1", ["optimizer/"]).keys() == {
        "state.pth",
        "best.pth",
        "a b.bin",
        "logs/",
    }
    assert storage.delete_stored_files(store, "c1") == {}


@pytest.fixture
def original(base: Path) -> Iterator[None]:
    (base / "c1").mkdir(parents=True)
    for name in ("model.pth", "extra"):
        (base / "c1" / name).write_text(name)
    (base / "c1" / storage.METADATA_FILE).write_text(json.dumps({"steps_completed": 5}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.usefixtures("original")
def test_files_of_a_checkpoint_of_the_original_are_deleted(store: DirectoryStorage, base: Path, tmp_path: Path) -> None:
    storage.delete_stored_files(store, "c1", ["extra"])
    assert json.loads((base / "c1" / storage.METADATA_FILE).read_text()) == {"steps_completed": 5}
    storage.restore_checkpoint(store, "c1", tmp_path / "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"model.pth", storage.METADATA_FILE}


def test_a_damaged_manifest_prevents_only_a_partial_delete(store: DirectoryStorage, base: Path, source: Path) -> None:
    save(store, source)
    (base / "c1" / storage.METADATA_FILE).unlink()
    (base / "c1" / storage.METADATA_FILE).write_text("{")
    with pytest.raises(CheckpointCorrupt, match="is damaged"):
        storage.delete_stored_files(store, "c1", ["*.pth"])
    assert (base / "c1" / "best.pth").exists()
    assert storage.delete_stored_files(store, "c1") == {}


def test_a_link_in_the_place_of_a_listed_directory_is_not_followed(source: Path, tmp_path: Path) -> None:
    """Others who may write to the store could have any files of its user removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "state.pth").write_text("of the user")

    class Swapped(DirectoryStorage):
        def list(self, storage_id: str) -> dict[str, int]:
            found = super().list(storage_id)
            directory = self.local_path(storage_id) / "optimizer"
            directory.rename(tmp_path / "moved")
            directory.symlink_to(outside)
            return found

    config = DirectoryConfig(container_path=tmp_path / "store")
    save(DirectoryStorage(config), source)
    with pytest.raises(StorageError, match="cannot remove files of .*: Not a directory"):
        storage.delete_stored_files(Swapped(config), "c1")
    assert (outside / "state.pth").read_text() == "of the user"
