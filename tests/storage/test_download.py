"""Downloads, which replace files in a directory only with complete and verified ones."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path

import google_crc32c
import pytest

from det_core import storage
from det_core.errors import CheckpointCorrupt, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage.directory import DirectoryStorage
from tests.storage.memory import MemoryBucket

FILES = {"sub/weights": b"good" * 100, "a": b"1", "z": b"2"}


def save(store: StorageManager, storage_id: str, where: Path, files: dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        path = where / storage_id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    storage.save_checkpoint(store, storage_id, storage.scan_directory(where / storage_id), {"of": storage_id})


def tree(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("below", [".", "sub", "new/deep"])
@pytest.mark.parametrize("which", ["itself", "another"])
def test_a_download_into_a_directory_of_the_store_is_refused(
    store: DirectoryStorage, base: Path, tmp_path: Path, below: str, which: str
) -> None:
    """A download into a stored checkpoint would destroy it."""
    one, other = str(uuid.uuid4()), str(uuid.uuid4())
    for storage_id in (one, other):
        save(store, storage_id, tmp_path / "source")
    (tmp_path / "link").symlink_to(base)
    before = tree(base)
    for way in (base, tmp_path / "link"):
        with pytest.raises(StorageError, match="is where the storage keeps checkpoint .*another directory"):
            storage.restore_checkpoint(store, one, way / (one if which == "itself" else other) / below)
    assert tree(base) == before


def test_another_directory_beside_the_checkpoints_can_be_reused(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    """Only checkpoints are protected, because ``container_path`` may be the working directory."""
    save(store, "one", tmp_path / "source")
    for _ in range(2):
        storage.restore_checkpoint(store, "one", base / "best")
    assert tree(base / "best") == tree(base / "one")


def test_links_to_stored_files_are_replaced_and_not_followed(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    """A download into the directory of ``restore_path`` must not write through its links into the store."""
    save(store, "one", tmp_path / "source")
    before = tree(base)
    found = storage.find_checkpoint(store, "one")
    found.link(found.names(), tmp_path / "links", base / "one")
    save(store, "two", tmp_path / "source", {"a": b"another"})
    storage.restore_checkpoint(store, "two", tmp_path / "links")
    assert before.items() <= tree(base).items()
    assert (tmp_path / "links" / "a").read_bytes() == b"another"


@pytest.mark.parametrize("kind", ["directory", "objects"])
@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_download_that_fails_leaves_the_earlier_copy(
    base: Path, tmp_path: Path, kind: str, damage: str, store: DirectoryStorage
) -> None:
    """A download that fails must not delete the files of an earlier one."""
    bucket = MemoryBucket()
    used: StorageManager = store if kind == "directory" else storage.ObjectStorage(bucket, "")
    save(used, "one", tmp_path / "source")
    storage.restore_checkpoint(used, "one", tmp_path / "copy")
    before = tree(tmp_path / "copy")
    (tmp_path / "bad").write_bytes(b"damaged")
    if damage == "lost":
        used.delete("one", ["z"])
    else:
        used.put("one", "z", tmp_path / "bad")
    with pytest.raises(CheckpointCorrupt, match="z"):
        storage.restore_checkpoint(used, "one", tmp_path / "copy")
    assert tree(tmp_path / "copy") == before
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"a", "z", "sub", storage.METADATA_FILE}


def test_two_downloads_into_one_directory_never_show_half_a_file(
    store: DirectoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second download must not truncate files that the first one has verified."""
    save(store, "one", tmp_path / "source")
    storage.restore_checkpoint(store, "one", tmp_path / "copy")
    whole = tree(tmp_path / "copy")
    seen = []
    get = DirectoryStorage.get

    def get_and_look(self: DirectoryStorage, storage_id: str, path: str, target: Path) -> str | None:
        crc = get(self, storage_id, path, target)
        seen.append({name: (tmp_path / "copy" / name).read_bytes() for name in whole})
        return crc

    monkeypatch.setattr(DirectoryStorage, "get", get_and_look)
    others = [
        threading.Thread(target=storage.restore_checkpoint, args=(store, "one", tmp_path / "copy")) for _ in range(2)
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert len(seen) == 2 * (len(FILES) + 1)
    assert all(state == whole for state in seen)
    assert tree(tmp_path / "copy") == whole


def test_another_checkpoint_in_the_directory_is_replaced(store: DirectoryStorage, tmp_path: Path) -> None:
    """The old ``metadata.json`` is removed first, because it does not describe the new files."""
    save(store, "one", tmp_path / "source")
    save(store, "two", tmp_path / "source", {"a": b"new"})
    storage.restore_checkpoint(store, "one", tmp_path / "copy")
    storage.restore_checkpoint(store, "two", tmp_path / "copy")
    copied = tree(tmp_path / "copy")
    assert copied["a"] == b"new"
    assert b'"of": "two"' in copied[storage.METADATA_FILE]


def test_links_inside_a_checkpoint_become_files(store: DirectoryStorage, base: Path, tmp_path: Path) -> None:
    (base / "one" / "epoch").mkdir(parents=True)
    (base / "one" / storage.METADATA_FILE).write_text("{}")
    (base / "one" / "epoch" / "3").write_text("weights")
    (base / "one" / "last").symlink_to("epoch/3")
    with pytest.warns(UserWarning, match="no checksums"):
        storage.restore_checkpoint(store, "one", tmp_path / "copy")
    assert (tmp_path / "copy" / "last").read_text() == "weights"
    assert not (tmp_path / "copy" / "last").is_symlink()


@pytest.mark.parametrize("target", ["{}/outside/id_rsa", "../../outside/id_rsa", "../one2/x"])
def test_links_out_of_a_checkpoint_are_not_followed(
    store: DirectoryStorage, base: Path, tmp_path: Path, target: str
) -> None:
    """A checkpoint without checksums may come from anyone."""
    for path in (tmp_path / "outside" / "id_rsa", base / "one2" / "x", base / "one" / "weights"):
        path.parent.mkdir(parents=True)
        path.write_text("secret")
    (base / "one" / storage.METADATA_FILE).write_text("{}")
    (base / "one" / "key").symlink_to(target.format(tmp_path))
    with pytest.warns(UserWarning, match="no checksums"):
        found = storage.find_checkpoint(store, "one")
    message = "key is a link out of the checkpoint, to .*selector"
    with pytest.raises(CheckpointCorrupt, match=message):
        found.fetch(found.names(), tmp_path / "copy")
    for verify in (True, False):
        with pytest.raises(CheckpointCorrupt, match=message):
            found.link(found.names(), tmp_path / f"links {verify}", base / "one", verify=verify)
    assert not (tmp_path / "copy" / "key").exists()
    found.fetch(["weights"], tmp_path / "copy")


def test_links_to_directories_out_of_a_checkpoint_are_not_followed(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "id_rsa").write_text("secret")
    (base / "one").mkdir(parents=True)
    (base / "one" / "keys").symlink_to(tmp_path / "outside")
    manifest = {
        "format": 1,
        "files": {"keys/id_rsa": [6, f"{storage.checksum_file(tmp_path / 'outside' / 'id_rsa').crc32c}"]},
    }
    (base / "one" / storage.METADATA_FILE).write_text(json.dumps({"_det": manifest}))
    with pytest.raises(CheckpointCorrupt, match="keys/id_rsa is a link out of the checkpoint"):
        storage.restore_checkpoint(store, "one", tmp_path / "copy")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\0b", "a//b", "./a", "", "/", "..", "a\ud800"])
def test_names_in_a_bucket_cannot_leave_the_checkpoint(name: str, tmp_path: Path) -> None:
    bucket = MemoryBucket()
    for key in ("one/metadata.json", f"one/{name}"):
        bucket.put(key, b"{}", google_crc32c.value(b"{}"))
    with pytest.warns(UserWarning, match="no checksums"):
        found = storage.find_checkpoint(storage.ObjectStorage(bucket, ""), "one")
    if not name:
        assert found.names() == []
        return
    with pytest.raises(CheckpointCorrupt, match="outside the checkpoint"):
        found.fetch(found.names(), tmp_path / "deep" / "copy")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
