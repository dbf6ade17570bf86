"""Tests that whole checkpoints are either present and intact, or absent."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from det_core import storage as det_storage
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.interfaces.storage import StorageManager
from det_testing.storage._file_tests import CONTENT
from det_testing.storage._store_suite import Damage, Shelf, StoreSuite, implements_stored

CONTENTS = {
    "state.pth": CONTENT,
    "a b/c+d%.bin": CONTENT[:1000],
    "sub/metadata.json": b"{}",
    "empty": b"",
    "logs/": b"",
}


def _flip_a_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flip_a_bit,
    "truncated": lambda content: content[:-1],
    "extended": lambda content: content + b"\0",
    "emptied": lambda _: b"",
}


def contents_of(directory: Path) -> dict[str, bytes]:
    """Return the restored files and empty directories without the checkpoint's own ``metadata.json``."""
    found = det_storage.scan_directory(directory, lambda name: name != det_storage.METADATA_FILE)
    kept = {name: path for name, path in found.items() if not (path.is_dir() and any(path.iterdir()))}
    return {name: b"" if name.endswith("/") else path.read_bytes() for name, path in kept.items()}


def assert_nothing_is_there(storage: StorageManager, storage_id: str) -> None:
    """Check that the checkpoint does not exist and has no files."""
    with pytest.raises(CheckpointNotFound):
        det_storage.find_checkpoint(storage, storage_id)
    assert storage.list(storage_id) == {}


class StoreCheckpointTests(StoreSuite):
    """Tests of `det_core.storage` with this store."""

    def test_a_saved_checkpoint_restores(self, shelf: Shelf, tmp_path: Path) -> None:
        resources = det_storage.save_checkpoint(shelf.storage, "c", shelf.files(CONTENTS), {"steps_completed": 3})
        assert {name: resources[name] for name in CONTENTS} == {name: len(data) for name, data in CONTENTS.items()}
        det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")
        assert contents_of(tmp_path / "back") == CONTENTS
        assert det_storage.read_checkpoint_metadata(shelf.storage, "c") == {"steps_completed": 3}

    def test_a_checkpoint_is_invisible_until_it_is_whole(self, shelf: Shelf, tmp_path: Path) -> None:
        entries = shelf.storage.put_files("c", shelf.files(CONTENTS))
        with pytest.raises(CheckpointNotFound, match="c"):
            det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")
        det_storage.publish_checkpoint(shelf.storage, "c", entries, {})
        det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")
        assert contents_of(tmp_path / "back") == CONTENTS

    def test_a_deleted_checkpoint_is_gone(self, shelf: Shelf) -> None:
        for storage_id in ("c", "kept"):
            det_storage.save_checkpoint(shelf.storage, storage_id, shelf.files(CONTENTS), {})
        for _ in range(2):
            det_storage.delete_stored_files(shelf.storage, "c")
            assert_nothing_is_there(shelf.storage, "c")
        assert shelf.storage.list("kept").keys() == {*CONTENTS, det_storage.METADATA_FILE}

    def test_a_selector_fetches_only_what_it_accepts(self, shelf: Shelf, tmp_path: Path) -> None:
        det_storage.save_checkpoint(shelf.storage, "c", shelf.files(CONTENTS), {})
        det_storage.restore_checkpoint(
            shelf.storage, "c", tmp_path / "back", selector=lambda path: path.startswith("a b")
        )
        assert contents_of(tmp_path / "back") == {"a b/c+d%.bin": CONTENTS["a b/c+d%.bin"]}

    def test_a_file_that_vanished_makes_no_checkpoint(self, shelf: Shelf) -> None:
        files = shelf.files(CONTENTS)
        files["empty"].unlink()  # the last
        with pytest.raises(StorageError, match="vanished"):
            det_storage.save_checkpoint(shelf.storage, "c", files, {})
        assert_nothing_is_there(shelf.storage, "c")

    def test_a_file_that_changes_makes_no_checkpoint(self, shelf: Shelf) -> None:
        files = shelf.files(CONTENTS) | {"large": shelf.file(bytes(self.large_file))}
        with _changing(files["large"]), pytest.raises(StorageError, match="changed"):
            _save_for_a_minute(shelf.storage, "c", files)
        assert_nothing_is_there(shelf.storage, "c")

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_damage_is_found(self, shelf: Shelf, tmp_path: Path, damage: str) -> None:
        det_storage.save_checkpoint(shelf.storage, "c", shelf.files(CONTENTS), {})
        shelf.put("c", "state.pth", DAMAGES[damage](CONTENT))
        with pytest.raises(CheckpointCorrupt, match=r"state\.pth"):
            det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")

    @pytest.mark.parametrize("kind", DAMAGES)
    def test_damage_of_the_medium_is_found(self, shelf: Shelf, damage: Damage, tmp_path: Path, kind: str) -> None:
        """Any error but CheckpointCorrupt would not let the trial go back to its previous checkpoint."""
        det_storage.save_checkpoint(shelf.storage, "c", shelf.files(CONTENTS), {})
        damage("c", "state.pth", DAMAGES[kind])
        with suppress(CheckpointCorrupt):  # a store may repair the file
            det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")
            assert contents_of(tmp_path / "back") == CONTENTS

    def test_a_lost_file_is_found(self, shelf: Shelf, tmp_path: Path) -> None:
        det_storage.save_checkpoint(shelf.storage, "c", shelf.files(CONTENTS), {})
        shelf.storage.delete("c", ["state.pth"])
        with pytest.raises(CheckpointCorrupt, match=r"state\.pth"):
            det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")

    def test_a_checkpoint_of_the_original_restores_with_one_warning(self, shelf: Shelf, tmp_path: Path) -> None:
        for name, data in CONTENTS.items():
            shelf.put("c", name, data)
        shelf.put("c", det_storage.METADATA_FILE, json.dumps({"steps_completed": 5}).encode())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            det_storage.restore_checkpoint(shelf.storage, "c", tmp_path / "back")
        assert ["no checksums" in str(warning.message) for warning in told].count(True) == 1
        assert contents_of(tmp_path / "back") == CONTENTS

    def test_check_succeeds_and_leaves_nothing(self, storage: StorageManager) -> None:
        det_storage.check_storage(storage)
        if implements_stored(storage):
            assert storage.stored() == {}


def _save_for_a_minute(storage: StorageManager, storage_id: str, files: Mapping[str, Path]) -> None:
    """Save and delete repeatedly, because a fast store may finish before the next change of a file."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        det_storage.save_checkpoint(storage, storage_id, files, {})
        det_storage.delete_stored_files(storage, storage_id)


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Write to the file from another thread while the block runs."""
    stop = threading.Event()

    def change() -> None:
        with path.open("r+b") as file:
            for moment in count(1):
                if stop.is_set():
                    return
                os.pwrite(file.fileno(), bytes([moment % 256]), 0)
                os.utime(path, ns=(moment, moment))  # clocks of file systems are coarse

    changer = threading.Thread(target=change)
    changer.start()
    try:
        yield
    finally:
        stop.set()
        changer.join()
