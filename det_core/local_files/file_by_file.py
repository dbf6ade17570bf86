"""Storing and reading of many files by functions for one file, in several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from det_core.local_files.checksum import EMPTY_ENTRY, Entry, checksum_file
from det_core.local_files.parallel import in_parallel
from det_core.local_files.source_file import SourceFile


def put_each(put: Callable[[str, Path], str | None], files: Mapping[str, Path], *, threads: int) -> dict[str, Entry]:
    """Store files, and return their entries by path.

    Args:
        put: function like `StorageManager.put` of one checkpoint.
        files: local files by the path to store them under.
        threads: maximum number of calls at once.

    Raises:
        StorageError: a file changed or vanished in the meantime.
    """
    entries: dict[str, Entry] = {}

    def put_one(path: str) -> None:
        entries[path] = _put_file(put, path, files[path])

    in_parallel(put_one, files, threads=threads)
    return {path: entries[path] for path in files}


def get_each(
    get: Callable[[str, Path], str | None],
    files: Mapping[str, tuple[Path, int]],
    progress: Callable[[int], object] | None,
    *,
    threads: int,
) -> dict[str, Entry]:
    """Write stored files to their targets, and return the entries of what was written, by path.

    Args:
        get: function like `StorageManager.get` of one checkpoint.
        files: target and expected size in bytes of each file, by path.
        progress: called from any thread with the number of bytes that were just written.
        threads: maximum number of calls at once.

    Raises:
        FileNotFoundError: nothing is stored under one of the paths, which is the only argument of the error.
    """
    entries: dict[str, Entry] = {}

    def get_one(path: str) -> None:
        entries[path] = _get_file(get, path, files[path][0])
        if progress:
            progress(entries[path].size)

    in_parallel(get_one, files, threads=threads)
    return {path: entries[path] for path in files}


def _put_file(put: Callable[[str, Path], str | None], path: str, source: Path) -> Entry:
    if path.endswith("/"):
        put(path, source)
        return EMPTY_ENTRY
    before = SourceFile(source)
    try:
        crc = put(path, source)
    except FileNotFoundError:
        before.check()
        raise
    entry = checksum_file(source) if crc is None else Entry(before.size, crc)
    before.check()
    return entry


def _get_file(get: Callable[[str, Path], str | None], path: str, target: Path) -> Entry:
    try:
        crc = get(path, target)
    except FileNotFoundError as error:
        raise FileNotFoundError(path) from error
    return checksum_file(target) if crc is None else Entry(target.stat().st_size, crc)
