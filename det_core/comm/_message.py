"""What goes over a link."""

from __future__ import annotations

import functools
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

Buffer: TypeAlias = "bytes | memoryview"

DATA, FILE, NUDGE, FAIL, NOTICE = range(5)
"""Kinds of frames: a payload, one in an anonymous file, "I wait for you in this call", an error for all, a text."""

HEADER: Final = struct.Struct("!BB6xQQ")
"""Kind, op and seq of the call, bytes of the payload."""

SMALL: Final = 1 << 15
"""Bytes of a payload that goes in one piece with its header."""


class Message:
    """One frame, built once, to be sent to any number of peers.

    Args:
        kind: `DATA`, `NUDGE`, `FAIL` or `NOTICE`.
        op: which collective, an index.
        seq: which call of it.
        parts: the payload.
    """

    def __init__(self, kind: int, op: int, seq: int, *parts: Buffer) -> None:
        size = sum(map(len, parts))
        header = HEADER.pack(kind, op, seq, size)
        self.parts = (header, *parts) if size > SMALL else (b"".join((header, *parts)),)
        self.file_header = HEADER.pack(FILE, op, seq, size) if size > SMALL and kind == DATA else None
        """The header of the same frame with its payload in `file`; None if that is not worth it."""
        self._file = -1

    def file(self) -> int:
        """Descriptor of an anonymous file with the payload, which lives as long as anybody holds it."""
        if self._file < 0:
            self._file = os.memfd_create("det")
            for part in self.parts[1:]:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
        return self._file

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def map_file(descriptor: int, size: int) -> memoryview:
    """The payload in an anonymous file that arrived; it is unmapped with the last view of it."""
    try:
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
    finally:
        os.close(descriptor)


def pack(entries: Mapping[int, Buffer]) -> tuple[Buffer, ...]:
    """Several workers' payloads as parts of one: a table of keys and sizes, then the payloads."""
    return _table(len(entries)).pack(len(entries), *entries, *map(len, entries.values())), *entries.values()


def unpack(payload: Buffer) -> dict[int, Buffer]:
    """What was packed, in the same order."""
    (count,) = _COUNT.unpack_from(payload)
    table = _table(count)
    numbers, at = table.unpack_from(payload), table.size
    entries = {}
    for key, size in zip(numbers[1 : count + 1], numbers[count + 1 :], strict=True):
        entries[key] = payload[at : at + size]
        at += size
    return entries


_COUNT: Final = struct.Struct("!I")


@functools.lru_cache
def _table(count: int) -> struct.Struct:
    return struct.Struct(f"!I{count}I{count}Q")
