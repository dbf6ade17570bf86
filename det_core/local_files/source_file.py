"""Local file that is read while it must not change."""

from __future__ import annotations

import os
from pathlib import Path

from det_core.errors import StorageError


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
