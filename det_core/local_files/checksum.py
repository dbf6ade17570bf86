"""Size and CRC-32C of a file, from a single read that can also copy it. Large files are read in concurrent parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path

import google_crc32c

from det_core.local_files.file_sync import start_sync
from det_core.local_files.parallel import in_parallel

_PART = 64 << 20
_PIECE = 64 << 10  # small enough to stay in a core's cache from the read through the checksum to the write
_ZEROS = bytes(_PIECE)
_THREADS = min(8, os.cpu_count() or 1)
_POLYNOMIAL = 0x82F63B78  # Castagnoli, RFC 3720 B.4, lowest degree in the highest bit


@dataclass(frozen=True)
class Entry:
    """Size and checksum of one path in a manifest."""

    size: int
    """Size in bytes."""
    crc32c: str
    """CRC-32C as 8 hexadecimal digits."""


EMPTY_ENTRY = Entry(0, "00000000")
"""Entry of an empty directory."""


def checksum_file(source: Path, copy_to: int | None = None, *, sync: bool = False) -> Entry:
    """Read a file and return its size and CRC-32C.

    Args:
        source: the file to read.
        copy_to: descriptor of an empty file that receives the same contents.
        sync: whether the caller will sync the copy. The kernel then starts writing large files during the copy.
    """
    descriptor = os.open(source, os.O_RDONLY)
    try:
        first = os.pread(descriptor, _PIECE, 0)
        if len(first) < _PIECE:
            return _small(first, copy_to)
        size, parts = os.fstat(descriptor).st_size, {}

        def read(start: int) -> None:
            parts[start] = _read(descriptor, start, copy_to, sync=sync and size > _PART)

        in_parallel(read, range(0, size, _PART), threads=_THREADS)
        whole = combine_entries([parts[start] for start in sorted(parts)])
        if copy_to is not None:
            os.ftruncate(copy_to, whole.size)  # the file may end in a hole
        return whole
    finally:
        os.close(descriptor)


def _small(content: bytes, copy_to: int | None) -> Entry:
    """Return the entry of a file that one read covers, without the system calls that only larger files need."""
    if copy_to is not None:
        write_at(copy_to, content, 0)
    return Entry(len(content), f"{google_crc32c.value(content):08x}")


def combine_entries(parts: Sequence[Entry]) -> Entry:
    """Return the entry of a file from the entries of its consecutive parts."""
    size, crc = reduce(_join, ((part.size, int(part.crc32c, 16)) for part in parts))
    return Entry(size, f"{crc:08x}")


def _read(source: int, start: int, copy_to: int | None, *, sync: bool) -> Entry:
    crc, position = 0, start
    while piece := os.pread(source, min(_PIECE, start + _PART - position), position):
        crc = google_crc32c.extend(crc, piece)
        if copy_to is not None and piece != _ZEROS[: len(piece)]:  # skip zeros, to preserve the holes of sparse files
            write_at(copy_to, piece, position)
        position += len(piece)
    if sync and copy_to is not None:
        start_sync(copy_to, start, position - start)
    return Entry(position - start, f"{crc:08x}")


def write_at(target: int, piece: bytes, position: int) -> None:
    """Write the whole piece to a descriptor, starting at an offset of ``position`` bytes."""
    written = os.pwrite(target, piece, position)
    while written < len(piece):  # a nearly full disk accepts a part, and the next call raises
        written += os.pwrite(target, piece[written:], position + written)


def _join(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    """Return (size, CRC-32C) of the concatenation of two parts.

    CRC-32C is linear over GF(2). The result is the first checksum times x^(8 * size of the second part) modulo the
    polynomial, plus the second checksum.
    """
    (size, crc), (added, other) = first, second
    return size + added, _times(_power_of_x(8 * added), crc) ^ other


def _times(a: int, b: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the polynomial of CRC-32C."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=16)  # all parts except the last have the same length
def _power_of_x(exponent: int) -> int:
    """Return x to the power of ``exponent``, modulo the polynomial of CRC-32C, by repeated squaring."""
    power, square = 1 << 31, 1 << 30  # x^0 and x^1
    while exponent:
        if exponent & 1:
            power = _times(power, square)
        square = _times(square, square)
        exponent >>= 1
    return power
