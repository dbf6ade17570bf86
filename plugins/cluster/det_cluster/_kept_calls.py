"""Calls of the workers that wait in a file on their node until the runner can be reached."""

from __future__ import annotations

import struct
import tempfile
import threading

_LENGTH = struct.Struct("!I")
_ENOUGH_BYTES = 1 << 20
"""Number of bytes after which `KeptCalls.await_records` returns no further record."""


class KeptCalls:
    """Queue of records in a file that has no name, so that it ends with this process.

    Args:
        max_bytes: size of the file above which `add` waits.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._file = tempfile.TemporaryFile(prefix="det-kept-")  # noqa: SIM115  (it is closed with the queue)
        self._begin = self._end = self._count = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return self._count

    def add(self, record: bytes, *, waits: bool = True) -> bool:
        """Append a record, and return whether it is there. After `close`, it is not.

        Args:
            record: the record.
            waits: whether to wait until there is room.

        Raises:
            OSError: the disk is full.
        """
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._end < self._max_bytes or self._is_closed)
            if self._is_closed or self._end >= self._max_bytes:
                return False
            self._file.seek(self._end)
            self._file.write(_LENGTH.pack(len(record)) + record)
            self._file.flush()
            self._end = self._file.tell()
            self._count += 1
            self._changed.notify_all()
            return True

    def await_records(self, most: int) -> list[bytes]:
        """Wait for records, and return the oldest ones, which stay in the queue. There are none after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._is_closed)
            if self._is_closed:
                return []
            self._file.seek(self._begin)
            records = [self._read()]
            while len(records) < min(most, self._count) and self._file.tell() < self._begin + _ENOUGH_BYTES:
                records.append(self._read())
            return records

    def remove(self, records: list[bytes]) -> None:
        """Remove the oldest records, which `await_records` has returned."""
        with self._changed:
            if self._is_closed:
                return
            self._begin += sum(_LENGTH.size + len(record) for record in records)
            self._count -= len(records)
            if not self._count:
                self._begin = self._end = 0
                self._file.truncate(0)
            self._changed.notify_all()

    def await_empty(self) -> None:
        """Wait until no record is left, or until `close`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count or self._is_closed)

    def close(self) -> None:
        """End all waits. What is left is dropped."""
        with self._changed:
            self._is_closed = True
            self._file.close()
            self._changed.notify_all()

    def _read(self) -> bytes:
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        return self._file.read(length)
