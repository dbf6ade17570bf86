"""What goes over a link."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

Buffer: TypeAlias = "bytes | memoryview"

DATA, MANY, NUDGE, FAIL, NOTICE = range(5)
"""Kinds of frames: a payload, several (see `pack`), "I wait for you in this call", an error for all, a text."""

FILE: Final = 8
"""Added to the kind of a frame whose payload is in an anonymous file."""

HEADER: Final = struct.Struct("!BB6xQQ")
"""Kind, op and seq of the call, bytes of the payload."""

SMALL: Final = 1 << 15
"""Bytes of a payload that goes in one piece with its header."""


class Message:
    """One frame, built once, to be sent to any number of peers.

    Args:
        kind: of the frame.
        op: which collective, an index.
        seq: which call of it.
        parts: the payload.
    """

    def __init__(self, kind: int, op: int, seq: int, *parts: Buffer) -> None:
        size = sum(map(len, parts))
        header = HEADER.pack(kind, op, seq, size)
        self.parts = (header, *parts) if size > SMALL else (b"".join((header, *parts)),)
        self.file_header = HEADER.pack(kind + FILE, op, seq, size) if size > SMALL else None
        """The header of the same frame with its payload in `file`; None if that is not worth it."""
        self._file: _AnonymousFile | None = None

    def file(self) -> int:
        """Descriptor of an anonymous file with the payload; it lives as long as anybody holds one."""
        if self._file is None:
            self._file = _AnonymousFile(self.parts[1:])
        return self._file.descriptor


class _AnonymousFile:
    def __init__(self, parts: Iterable[Buffer]) -> None:
        self.descriptor = os.memfd_create("det")
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]

    def __del__(self) -> None:
        os.close(self.descriptor)


_MAP: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


def map_file(descriptor: int, size: int) -> memoryview:
    """The payload in an anonymous file that arrived; it is unmapped with the last view of it."""
    try:
        return memoryview(mmap.mmap(descriptor, size, _MAP, mmap.PROT_READ))
    finally:
        os.close(descriptor)


def pack(entries: Mapping[int, Buffer]) -> tuple[Buffer, ...]:
    """Several workers' payloads as parts of one: a table of keys and sizes, then the payloads."""
    return _table(len(entries)).pack(len(entries), *entries, *map(len, entries.values())), *entries.values()


def unpack(payload: Buffer) -> dict[int, Buffer]:
    """What was packed, in the same order."""
    (count,) = _COUNT.unpack_from(payload)
    table = _table(count)
    numbers = table.unpack_from(payload)
    ends = list(itertools.accumulate(numbers[count + 1 :], initial=table.size))
    return {key: payload[start:end] for key, start, end in zip(numbers[1:], ends, ends[1:], strict=False)}


_COUNT: Final = struct.Struct("!I")


@functools.lru_cache
def _table(count: int) -> struct.Struct:
    return struct.Struct(f"!I{count}I{count}Q")
