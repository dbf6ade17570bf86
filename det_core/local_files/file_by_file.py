"""Local files that are stored and written one by one, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from det_core.errors import StorageError
from det_core.local_files.checksum import EMPTY_ENTRY, Entry, checksum_file
from det_core.local_files.parallel import in_parallel


class SourceFile:
    """Local file that must not change while it is read.

    Args:
        path: path of the file.
        grows: whether data may be appended to the file. Only its present content is read.

    Raises:
        StorageError: the file does not exist.
    """

    def __init__(self, path: Path, *, grows: bool = False) -> None:
        self.path, self._name = path, os.fspath(path)
        self._grows = grows
        self._before = self._stat()
        self.size = self._before.st_size

    def read(self, start: int, size: int) -> bytes:
        """Read ``size`` bytes from offset ``start``.

        Raises:
            StorageError: the file vanished or has become shorter.
        """
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(start)
                data = file.read(size)
        except FileNotFoundError as error:
            raise self._vanished() from error
        if len(data) != size:
            raise self._changed()
        return data

    def check(self) -> None:
        """Raise StorageError if the file has changed since this object was created."""
        after = self._stat()
        if self._grows and after.st_size >= self.size:
            return
        if (self._before.st_size, self._before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise self._changed()

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self._name)  # noqa: PTH116  # pathlib would add as much time as the system call takes
        except FileNotFoundError as error:
            raise self._vanished() from error

    def _vanished(self) -> StorageError:
        return StorageError(f"{self.path} vanished while it was being stored")

    def _changed(self) -> StorageError:
        return StorageError(f"{self.path} changed while it was being stored; finish writing before you upload")


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
