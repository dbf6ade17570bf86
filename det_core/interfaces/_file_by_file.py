"""Default methods of a store for many files, which call `put` and `get` for one file at a time in several threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from det_core.interfaces.storage import Progress, StorageManager
from det_core.local_files.checksum import EMPTY_ENTRY, Entry, checksum_file
from det_core.local_files.parallel import in_parallel
from det_core.local_files.source_file import SourceFile


def put_files(storage: StorageManager, storage_id: str, files: Mapping[str, Path]) -> dict[str, Entry]:
    """Store files as `StorageManager.put_files` describes."""
    entries: dict[str, Entry] = {}

    def put(path: str) -> None:
        entries[path] = _put_file(storage, storage_id, path, files[path])

    in_parallel(put, files, threads=storage.transfers)
    if files:
        storage.sync(storage_id, list(files))
    return {path: entries[path] for path in files}


def get_files(
    storage: StorageManager, storage_id: str, files: Mapping[str, tuple[Path, int]], progress: Progress | None
) -> dict[str, Entry]:
    """Write files to their targets as `StorageManager.get_files` describes."""
    entries: dict[str, Entry] = {}

    def get(path: str) -> None:
        entries[path] = _get_file(storage, storage_id, path, files[path][0])
        if progress:
            progress(entries[path].size)

    in_parallel(get, files, threads=storage.transfers)
    return {path: entries[path] for path in files}


def _put_file(storage: StorageManager, storage_id: str, path: str, source: Path) -> Entry:
    if path.endswith("/"):
        storage.put(storage_id, path, source)
        return EMPTY_ENTRY
    before = SourceFile(source)
    try:
        crc = storage.put(storage_id, path, source)
    except FileNotFoundError:
        before.check()
        raise
    entry = checksum_file(source) if crc is None else Entry(before.size, crc)
    before.check()
    return entry


def _get_file(storage: StorageManager, storage_id: str, path: str, target: Path) -> Entry:
    try:
        crc = storage.get(storage_id, path, target)
    except FileNotFoundError as error:
        raise FileNotFoundError(path) from error
    return checksum_file(target) if crc is None else Entry(target.stat().st_size, crc)
