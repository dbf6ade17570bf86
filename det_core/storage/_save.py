"""Saving of files as a checkpoint. A checkpoint exists once its ``metadata.json`` does, so that file comes last."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.local_files.checksum import EMPTY_ENTRY, Entry, checksum_file
from det_core.local_files.parallel import in_parallel
from det_core.storage._delete import delete_stored_files
from det_core.storage._directory_tree import walk_directory
from det_core.storage._manifest import KEY, METADATA_FILE, Manifest, put_manifest
from det_core.storage._selector import Selector

_WRITING = 0o222


def scan_directory(directory: Path, selector: Selector | None = None) -> dict[str, Path]:
    """Return the files under a directory by relative path. Paths of empty directories end in ``/``.

    Symbolic links to files count as files. ``metadata.json`` at the top is omitted, because the checkpoint will get its
    own.

    Args:
        directory: the directory to scan.
        selector: function of a relative path that returns whether to include the file. None includes all files.

    Raises:
        ValueError: there is a link to a directory, a dangling link or a special file.
    """
    found = {}
    for name, entry in walk_directory(directory):
        if name == METADATA_FILE or (selector and not selector(name)):
            continue
        if not (name.endswith("/") or entry.is_file()):
            raise ValueError(f"cannot store {entry.path}: expected files and directories; remove it or use a selector")
        found[name] = Path(entry.path)
    return found


def save_checkpoint(
    storage: StorageManager, storage_id: str, files: Mapping[str, Path], metadata: Mapping[str, Any]
) -> dict[str, int]:
    """Store a whole checkpoint and return its resources, which are the sizes in bytes by stored path.

    If anything fails, the files stored so far are deleted and the error is raised.

    Args:
        storage: the store to write to.
        storage_id: id of the new checkpoint.
        files: local files by the path to store them under, as returned by `scan_directory`.
        metadata: the user's metadata.

    Raises:
        StorageError: the store rejected a file, or a file changed or vanished during the upload.
    """
    try:
        return publish_checkpoint(storage, storage_id, storage.put_files(storage_id, files), metadata)
    except BaseException:
        delete_stored_files(storage, storage_id)
        raise


def adopt_files(
    storage: StorageManager, storage_id: str, files: Mapping[str, Path], directory: Path
) -> dict[str, Entry]:
    """Turn local files into stored files without a copy, and return their entries by stored path.

    Files are write-protected and moved to their place in the store's own directory unless they are there already. Links
    and files with several hard links are copied, because they may be used elsewhere.

    Args:
        storage: the store, whose files are in a local directory.
        storage_id: id of the new checkpoint.
        files: local files by the path to store them under.
        directory: the checkpoint's directory in the store.
    """
    entries: dict[str, Entry] = {}

    def adopt(name: str) -> None:
        entries[name] = _adopt(storage, storage_id, name, files[name], directory / name)

    links = [name for name, path in files.items() if not name.endswith("/") and _is_shared(path)]
    in_parallel(adopt, links, threads=storage.transfers)  # first, because their targets may be moved
    in_parallel(adopt, files.keys() - links, threads=storage.transfers)
    if files:
        storage.sync(storage_id, list(files))
    return {name: entries[name] for name in files}


def publish_checkpoint(
    storage: StorageManager, storage_id: str, entries: Mapping[str, Entry], metadata: Mapping[str, Any]
) -> dict[str, int]:
    """Publish stored files as a checkpoint, and return its resources as in `save_checkpoint`.

    The checkpoint is visible and durable on return.

    Args:
        storage: the store that holds the files.
        storage_id: id of the new checkpoint.
        entries: entries by stored path, as returned by `StorageManager.put_files` and `adopt_files`.
        metadata: the user's metadata.

    Raises:
        StorageError: the store rejected the manifest, or one of the files is missing in the store.
    """
    missing = entries.keys() - storage.list(storage_id).keys()
    if missing:
        raise StorageError(
            f"the storage lost {min(missing)!r} of checkpoint {storage_id}, which was just stored: it was removed, "
            "or another host stored it on its local disk; choose a checkpoint_storage that all hosts share"
        )
    manifest = Manifest({key: value for key, value in metadata.items() if key != KEY}, entries)
    size = put_manifest(storage, storage_id, manifest)
    return {**{name: entry.size for name, entry in entries.items()}, METADATA_FILE: size}


def _adopt(storage: StorageManager, storage_id: str, name: str, source: Path, target: Path) -> Entry:
    if name.endswith("/"):
        target.mkdir(parents=True, exist_ok=True)
        return EMPTY_ENTRY
    if _is_shared(source):
        storage.put(storage_id, name, source)
        return checksum_file(target)
    entry = checksum_file(source)
    source.chmod(source.stat().st_mode & ~_WRITING)
    if source != target:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    return entry


def _is_shared(path: Path) -> bool:
    """Return whether a file is a link or has several hard links, and so may be used elsewhere."""
    status = path.lstat()
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
