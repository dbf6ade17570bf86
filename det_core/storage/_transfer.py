"""Files on their way into a store or out of it: several at once, and large ones in parts where the store can."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage._attempts import PATIENT, Attempts, Patience
from det_core.storage._checksum import Entry, checksum
from det_core.storage._parallel import in_parallel

Progress: TypeAlias = Callable[[int], object]
"""Called from any thread with the number of bytes that were just moved."""

Step: TypeAlias = Callable[[Attempts], int]
"""A part of the work, done in any order and thread; returns the bytes moved."""

EMPTY = Entry(0, "00000000")
_MEMORY = 128 << 20


class Move(Protocol):
    """One file on its way."""

    memory: int
    """Bytes that a step holds."""

    def steps(self) -> Sequence[Step]:
        """What is to be done."""

    def finish(self) -> Entry:
        """What was moved, after the last step."""

    def abandon(self) -> None:
        """Leave nothing behind where the file was to go. Steps have ended, not all of them well."""


def run(
    moves: Mapping[str, Move], *, threads: int, progress: Progress | None = None, patience: Patience = PATIENT
) -> dict[str, Entry]:
    """Move them all; in the order of `moves`, as far as threads know one. What was moved, by name."""
    attempts = Attempts(patience)
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


class Source:
    """A file that must not change while it is read.

    Args:
        grows: whether it may be appended to. Only its present content is read.
    """

    def __init__(self, path: Path, *, grows: bool = False) -> None:
        self.path, self._name = path, os.fspath(path)
        self._grows = grows
        self._before = self._stat()
        self.size = self._before.st_size

    def read(self, start: int, size: int) -> bytes:
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
        """Raise if it changed since this object was made."""
        after = self._stat()
        if self._grows and after.st_size >= self.size:
            return
        if (self._before.st_size, self._before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise self._changed()

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self._name)  # noqa: PTH116  # pathlib would take as long as the system call
        except FileNotFoundError as error:
            raise self._vanished() from error

    def _vanished(self) -> StorageError:
        return StorageError(f"{self.path} vanished while it was being stored")

    def _changed(self) -> StorageError:
        return StorageError(f"{self.path} changed while it was being stored; finish writing before you upload")


class Put:
    """A file into a store that takes it as a whole."""

    memory = 1

    def __init__(self, store: StorageManager, storage_id: str, name: str, source: Path) -> None:
        self._store, self._storage_id, self._name, self._path = store, storage_id, name, source
        self._entry = EMPTY

    def steps(self) -> Sequence[Step]:
        return [self._put]

    def finish(self) -> Entry:
        return self._entry

    def abandon(self) -> None:
        """The store left nothing."""

    def _put(self, attempts: Attempts) -> int:
        if self._name.endswith("/"):
            self._store.put(self._storage_id, self._name, self._path)
            return 0
        source = Source(self._path)
        try:
            crc = self._store.put(self._storage_id, self._name, self._path)
        except FileNotFoundError:
            source.check()
            raise
        self._entry = checksum(self._path) if crc is None else Entry(source.size, crc)
        source.check()
        return source.size


class Get:
    """A file out of a store that gives it as a whole."""

    memory = 1

    def __init__(self, store: StorageManager, storage_id: str, name: str, target: Path) -> None:
        self._store, self._storage_id, self._name, self._target = store, storage_id, name, target
        self._entry = EMPTY

    def steps(self) -> Sequence[Step]:
        return [self._get]

    def finish(self) -> Entry:
        return self._entry

    def abandon(self) -> None:
        self._target.unlink(missing_ok=True)

    def _get(self, attempts: Attempts) -> int:
        try:
            crc = self._store.get(self._storage_id, self._name, self._target)
        except FileNotFoundError as error:
            raise FileNotFoundError(self._name) from error
        self._entry = checksum(self._target) if crc is None else Entry(self._target.stat().st_size, crc)
        return self._entry.size
