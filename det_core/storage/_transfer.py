"""Concurrent transfers of files to and from a store. Large files are split into parts if the store supports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage._checksum import Entry, checksum_file
from det_core.storage._parallel import in_parallel
from det_core.storage._retry_policy import DEFAULT_RETRY_POLICY, Retrier, RetryPolicy

Progress: TypeAlias = Callable[[int], object]
"""Called from any thread with the number of bytes that were just moved."""

Step: TypeAlias = Callable[[Retrier], int]
"""Part of a transfer, which can run in any order and thread. Returns the number of bytes that it moved."""

EMPTY_ENTRY = Entry(0, "00000000")
_MEMORY = 128 << 20


class Transfer(Protocol):
    """Transfer of one file."""

    memory: int
    """Maximum memory of one step, in bytes."""

    def steps(self) -> Sequence[Step]:
        """Return the steps of the transfer."""

    def finish(self) -> Entry:
        """Return the size and checksum of the transferred file. Called after all steps succeeded."""

    def abandon(self) -> None:
        """Remove everything that the transfer wrote to its target. Called once all steps have ended or failed."""


def run_transfers(
    moves: Mapping[str, Transfer],
    *,
    threads: int,
    progress: Progress | None = None,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> dict[str, Entry]:
    """Run all transfers and return the entries of the files, by name.

    Steps start in the order of ``moves``. If one fails, all transfers are abandoned.

    Args:
        moves: transfers by name.
        threads: maximum number of concurrent steps. Fewer run if their memory would exceed 128 MiB.
        progress: called from any thread with the number of bytes that were just moved.
        retry_policy: retry policy of each request.

    Raises:
        StorageError: a transfer failed.
    """
    attempts = Retrier(retry_policy)
    fitting = _MEMORY // max((move.memory for move in moves.values()), default=_MEMORY)

    def work(step: Step) -> None:
        moved = step(attempts)
        if progress:
            progress(moved)

    try:
        steps = [step for move in moves.values() for step in move.steps()]
        in_parallel(work, steps, threads=max(1, min(threads, fitting)), on_error=attempts.stop)
        return {name: move.finish() for name, move in moves.items()}
    except BaseException:
        for move in moves.values():
            move.abandon()
        raise


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


class FileUpload:
    """Upload of a file to a store in a single call."""

    memory = 1

    def __init__(self, store: StorageManager, storage_id: str, name: str, source: Path) -> None:
        self._store, self._storage_id, self._name, self._path = store, storage_id, name, source
        self._entry = EMPTY_ENTRY

    def steps(self) -> Sequence[Step]:
        return [self._put]

    def finish(self) -> Entry:
        return self._entry

    def abandon(self) -> None:
        """Do nothing, because a failed `StorageManager.put` stores nothing."""

    def _put(self, attempts: Retrier) -> int:
        if self._name.endswith("/"):
            self._store.put(self._storage_id, self._name, self._path)
            return 0
        source = SourceFile(self._path)
        try:
            crc = self._store.put(self._storage_id, self._name, self._path)
        except FileNotFoundError:
            source.check()
            raise
        self._entry = checksum_file(self._path) if crc is None else Entry(source.size, crc)
        source.check()
        return source.size


class FileDownload:
    """Download of a file from a store in a single call."""

    memory = 1

    def __init__(self, store: StorageManager, storage_id: str, name: str, target: Path) -> None:
        self._store, self._storage_id, self._name, self._target = store, storage_id, name, target
        self._entry = EMPTY_ENTRY

    def steps(self) -> Sequence[Step]:
        return [self._get]

    def finish(self) -> Entry:
        return self._entry

    def abandon(self) -> None:
        self._target.unlink(missing_ok=True)

    def _get(self, attempts: Retrier) -> int:
        try:
            crc = self._store.get(self._storage_id, self._name, self._target)
        except FileNotFoundError as error:
            raise FileNotFoundError(self._name) from error
        self._entry = checksum_file(self._target) if crc is None else Entry(self._target.stat().st_size, crc)
        return self._entry.size
