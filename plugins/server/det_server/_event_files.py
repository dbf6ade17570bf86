"""Reader of images, histograms and texts in TensorBoard event files, whose contents may be anything.

TensorBoard's own reader takes a second to import and has no limits. Formats: tensorflow/core/lib/io/record_writer.h,
tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto, tensor.proto.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO

import google_crc32c

MOST_BYTES = 256 << 20
"""Number of bytes of a file from which on it is not read."""
LARGEST_RECORD = 16 << 20
"""Maximum size of a record in bytes. A larger one ends the reading of its file."""
MOST_SECONDS = 2.0
"""Seconds after which no further record of a trial is read."""
MOST_ITEMS = 5000
MOST_TAGS = 200
LONGEST_TAG = 300
LONGEST_TEXT = 20_000
MOST_BUCKETS = 20_000
MOST_FIELDS = 100_000
"""Number of fields of a record, or of the contents of a value, after which the rest counts as damaged.

Each takes a microsecond and 200 bytes of memory, and two bytes of a file are enough for one.
"""
_HEADER = struct.Struct("<QI")
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""Beginnings of images with their types. WebP has its own check."""
_DOUBLE = 2
"""Type of tensors of 64-bit floats."""

_Fields = Iterator[tuple[int, "int | memoryview"]]


class _Field:
    """Numbers of the fields that are read, by message."""

    EVENT_STEP, EVENT_SUMMARY = 2, 5
    SUMMARY_VALUE = 1
    VALUE_TAG, VALUE_IMAGE, VALUE_HISTOGRAM, VALUE_TENSOR, VALUE_METADATA = 1, 4, 5, 8, 9
    METADATA_PLUGIN = 1
    PLUGIN_NAME = 1
    IMAGE_CONTENT = 4
    HISTOGRAM_MIN, HISTOGRAM_MAX, HISTOGRAM_LIMITS, HISTOGRAM_COUNTS = 1, 2, 6, 7
    TENSOR_TYPE, TENSOR_BYTES, TENSOR_DOUBLES, TENSOR_STRINGS = 1, 4, 6, 8


class Kind(Enum):
    """Kinds of what a script reports beside numbers."""

    IMAGE = "image"
    HISTOGRAM = "histogram"
    TEXT = "text"


_PLUGINS = {b"images": Kind.IMAGE, b"histograms": Kind.HISTOGRAM, b"text": Kind.TEXT}


@dataclass(frozen=True)
class Place:
    """Record of an event file.

    Args:
        path: path of the file below the directory of the trial.
        offset: position of the record's contents.
        size: their size in bytes.
    """

    path: str
    offset: int
    size: int


@dataclass
class Reported:
    """What was reported under one name.

    Args:
        kind: its kind.
        places: records by step.
    """

    kind: Kind
    places: dict[int, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Histogram:
    """Number of values in each of several ranges, which follow each other.

    Args:
        edges: ends of the ranges, one more than there are counts.
        counts: number of values in each.
    """

    edges: list[float]
    counts: list[float]


def index_file(file: BinaryIO, path: str, found: dict[str, Reported], deadline: float) -> None:
    """Add what an event file has to an index. Damage ends the reading of the file.

    Args:
        file: the file.
        path: its path, for the index.
        found: the index, by name.
        deadline: time of `time.monotonic` at which to stop.
    """
    plugins: dict[str, Kind] = {}
    offset = 0
    while offset < MOST_BYTES and time.monotonic() < deadline:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        size, checksum = _HEADER.unpack(header)
        if size > LARGEST_RECORD or checksum != _masked_crc(header[:8]):
            return
        record = file.read(size + 4)
        if len(record) < size + 4:
            return
        place = Place(path, offset + _HEADER.size, size)
        offset += _HEADER.size + size + 4
        try:
            _index_event(memoryview(record)[:size], place, plugins, found)
        except ValueError:
            return


def _index_event(event: memoryview, place: Place, plugins: dict[str, Kind], found: dict[str, Reported]) -> None:
    step, summaries, left = 0, [], _countdown()
    for number, value in _fields(event, left):
        if number == _Field.EVENT_STEP and isinstance(value, int):
            step = value if value < 1 << 63 else 0
        elif number == _Field.EVENT_SUMMARY and isinstance(value, memoryview):
            summaries.append(value)
    for tag, kind, _ in (one for summary in summaries for one in _values(summary, plugins, left)):
        if tag not in found and len(found) >= MOST_TAGS:
            continue
        known = found.setdefault(tag, Reported(kind))
        if known.kind is kind and sum(len(one.places) for one in found.values()) < MOST_ITEMS:
            known.places[step] = place


def _values(
    summary: memoryview, plugins: dict[str, Kind], left: Iterator[int]
) -> Iterator[tuple[str, Kind, memoryview]]:
    """Yield the name, the kind and the contents of the values that are no numbers."""
    for number, value in _fields(summary, left):
        if number != _Field.SUMMARY_VALUE or not isinstance(value, memoryview):
            continue
        parts = {key: part for key, part in _fields(value, left) if isinstance(part, memoryview)}
        tag = bytes(parts.get(_Field.VALUE_TAG, b"")[:LONGEST_TAG]).decode(errors="replace")
        metadata = parts.get(_Field.VALUE_METADATA)
        if metadata is not None and len(plugins) < MOST_TAGS and (kind := _plugin_kind(metadata, left)):
            plugins[tag] = kind  # only the first value of a name has it
        if _Field.VALUE_IMAGE in parts:
            yield tag, Kind.IMAGE, parts[_Field.VALUE_IMAGE]
        elif _Field.VALUE_HISTOGRAM in parts:
            yield tag, Kind.HISTOGRAM, parts[_Field.VALUE_HISTOGRAM]
        elif _Field.VALUE_TENSOR in parts and tag in plugins:
            yield tag, plugins[tag], parts[_Field.VALUE_TENSOR]


def _plugin_kind(metadata: memoryview, left: Iterator[int]) -> Kind | None:
    data = _find_bytes(metadata, _Field.METADATA_PLUGIN, left)
    name = _find_bytes(data, _Field.PLUGIN_NAME, left) if data else None
    return _PLUGINS.get(bytes(name)) if name is not None else None


def _find_bytes(message: memoryview, wanted: int, left: Iterator[int]) -> memoryview | None:
    """Return the first field with a number that has bytes, or None."""
    fields = _fields(message, left)
    return next((value for number, value in fields if number == wanted and isinstance(value, memoryview)), None)


def read_content(file: BinaryIO, place: Place, tag: str, kind: Kind) -> memoryview | None:
    """Return the encoded contents of a value, or None if they are damaged or gone."""
    file.seek(place.offset)
    record = file.read(place.size + 4)
    if len(record) < place.size + 4 or record[place.size :] != struct.pack("<I", _masked_crc(record[: place.size])):
        return None
    plugins, left = {tag: kind}, _countdown()
    try:
        fields = _fields(memoryview(record)[: place.size], left)
        summaries = [one for number, one in fields if number == _Field.EVENT_SUMMARY and isinstance(one, memoryview)]
        values = (one for summary in summaries for one in _values(summary, plugins, left))
        return next((content for name, found, content in values if (name, found) == (tag, kind)), None)
    except ValueError:
        return None


def decode_image(content: memoryview) -> tuple[bytes, str] | None:
    """Return the bytes of an image and its media type, or None unless they are PNG, JPEG, GIF or WebP."""
    for number, part in _fields(content, _countdown()):
        if number not in (_Field.IMAGE_CONTENT, _Field.TENSOR_STRINGS) or isinstance(part, int):
            continue
        start = bytes(part[:12])
        if start[:4] == b"RIFF" and start[8:] == b"WEBP":
            return bytes(part), "image/webp"
        if kind := next((kind for magic, kind in _IMAGES.items() if start.startswith(magic)), None):
            return bytes(part), kind
    return None


def decode_text(content: memoryview) -> str:
    """Return the text of a tensor, or its beginning."""
    texts = (
        bytes(part[: 4 * LONGEST_TEXT])
        for number, part in _fields(content, _countdown())
        if number == _Field.TENSOR_STRINGS and not isinstance(part, int)
    )
    return next(texts, b"").decode(errors="replace")[:LONGEST_TEXT]


def decode_histogram(content: memoryview) -> Histogram | None:
    """Return a histogram, or None if it is empty or malformed. Its ends are equal if all values are."""
    scalars, lists = dict[int, float](), dict[int, list[float]]()
    parts = list(_fields(content, _countdown()))
    if any(number == _Field.TENSOR_TYPE and isinstance(part, int) for number, part in parts):
        return _histogram_of_tensor(parts)
    for number, part in parts:
        if isinstance(part, int):
            continue
        values = _doubles(part)
        lists.setdefault(number, []).extend(values)
        scalars[number] = values[0] if values else 0.0
    limits, counts = lists.get(_Field.HISTOGRAM_LIMITS, []), lists.get(_Field.HISTOGRAM_COUNTS, [])
    if not counts or len(limits) != len(counts) or len(counts) > MOST_BUCKETS:
        return None
    low, high = scalars.get(_Field.HISTOGRAM_MIN, 0.0), scalars.get(_Field.HISTOGRAM_MAX, 0.0)
    edges = [min(max(one, low), high) for one in [low, *limits]]
    return _checked(edges, counts)


def _histogram_of_tensor(parts: list[tuple[int, int | memoryview]]) -> Histogram | None:
    """Return the histogram of a tensor with rows of left end, right end and count."""
    fields = dict(parts)
    data = fields.get(_Field.TENSOR_BYTES) or fields.get(_Field.TENSOR_DOUBLES)
    if fields.get(_Field.TENSOR_TYPE) != _DOUBLE or not isinstance(data, memoryview):
        return None
    values = _doubles(data)
    rows = [values[start : start + 3] for start in range(0, len(values) - 2, 3)][:MOST_BUCKETS]
    return _checked([rows[0][0], *(row[1] for row in rows)], [row[2] for row in rows]) if rows else None


def _checked(edges: list[float], counts: list[float]) -> Histogram | None:
    numbers = [*edges, *counts]
    is_sound = all(abs(one) < 1e300 for one in numbers) and min(counts) >= 0 and edges == sorted(edges)
    return Histogram(edges, counts) if is_sound else None


def _doubles(data: memoryview) -> list[float]:
    count = min(len(data) // 8, 3 * MOST_BUCKETS)
    return list(struct.unpack(f"<{count}d", data[: 8 * count]))


def _countdown() -> Iterator[int]:
    """Return an iterator with an item for each field that may still be read."""
    return iter(range(MOST_FIELDS))


def _fields(data: memoryview, left: Iterator[int]) -> _Fields:
    """Yield the numbers and the values of the fields of a message of Protocol Buffers.

    Raises:
        ValueError: the message is malformed, or has more fields than are left.
    """
    position, end = 0, len(data)
    while position < end:
        if next(left, None) is None:
            raise ValueError("there are too many fields")
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if size > end - position:
            raise ValueError("the message ends within a field")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("the message ends within a number")


def _masked_crc(data: bytes) -> int:
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
