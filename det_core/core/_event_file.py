"""Writer of scalars to TensorBoard event files, which are TFRecords of ``Event`` messages.

The encoder is our own, because every library that writes event files imports torch, TensorFlow or protobuf into the
training process. Formats: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto,
tensorflow/core/framework/summary.proto.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

import google_crc32c

_double = struct.Struct("<d").pack
_float = struct.Struct("<f").pack
_length = struct.Struct("<Q").pack
_checksum = struct.Struct("<I").pack

# Keys of protobuf fields, which contain the field number and the wire type (0 varint, 1 double, 2 bytes, 5 float).
_WALL_TIME = bytes([1 << 3 | 1])
_STEP = bytes([2 << 3 | 0])
_FILE_VERSION = bytes([3 << 3 | 2])
_SUMMARY = bytes([5 << 3 | 2])
_VALUE = bytes([1 << 3 | 2])
_TAG = bytes([1 << 3 | 2])
_SIMPLE_VALUE = bytes([2 << 3 | 5])


class EventFile:
    """New event file in a directory. Its name is unique per host and process."""

    def __init__(self, directory: Path) -> None:
        name = f"events.out.tfevents.{time.time_ns() / 1e9:020.9f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (directory / name).open("xb")
        event = _WALL_TIME + _double(time.time()) + _FILE_VERSION + _sized(b"brain.Event:2")
        self.write(_header(len(event)) + event + _masked_crc(event))

    def write(self, events: bytes) -> None:
        """Append events that `encode_scalars` encoded. Readers see them at once."""
        self._file.write(events)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def encode_scalars(wall_time: float, points: Iterable[tuple[int, Mapping[str, float]]]) -> bytes:
    """Return encoded events, one for each step.

    Args:
        wall_time: seconds since 1970.
        points: pairs of a step and its numbers by tag. Numbers are stored as 32-bit floats, so larger ones become
            infinite.
    """
    start = _WALL_TIME + _double(wall_time) + _STEP
    records: list[bytes] = []
    for step, values in points:  # few calls, because this takes time from the training loop
        summary = b""
        for tag, value in values.items():
            summary += _up_to_value(tag) + _float32(value)
        event = start + _varint(step) + _up_to_summary(len(summary)) + summary
        records += (_header(len(event)), event, _masked_crc(event))
    return b"".join(records)


@lru_cache
def _up_to_summary(size: int) -> bytes:
    return _SUMMARY + _varint(size)


@cache
def _up_to_value(tag: str) -> bytes:
    head = _TAG + _sized(tag.encode(errors="replace")) + _SIMPLE_VALUE
    return _VALUE + _varint(len(head) + 4) + head


def _float32(value: float) -> bytes:
    try:
        return _float(value)
    except (OverflowError, struct.error):  # raised for a large float and for a large int
        return _float(math.inf if value > 0 else -math.inf)


def _varint(number: int) -> bytes:
    if 0 <= number < 0x80:
        return bytes((number,))
    number &= 0xFFFF_FFFF_FFFF_FFFF  # negative numbers are written in two's complement
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


@lru_cache
def _header(size: int) -> bytes:
    """Return what comes before an event of this size in the file."""
    length = _length(size)
    return length + _masked_crc(length)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return _checksum(((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
