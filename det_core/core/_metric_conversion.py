"""Conversion of reported metrics to JSON-compatible copies, so that the caller may change its objects."""

from __future__ import annotations

import heapq
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from enum import Enum
from itertools import chain
from numbers import Real
from operator import index, methodcaller
from typing import Any

from det_core.interfaces.records import MAX_METRICS, MAX_STEPS, require_writable

MAX_REPORT_SIZE = 150_000
"""Maximum number of numbers and characters of text in one report, which are less than `LARGEST_RECORD` as JSON."""
MAX_COPY_SIZE = 1_000_000
"""Maximum number of numbers and characters of text in metadata, or in the metrics of all batches of one report."""
_INSTEAD = "report a summary of it, or save it in a checkpoint"
_DEEPEST = 50

_log = logging.getLogger("det.core")
_FLAT = frozenset((float, int, bool))
_STRING = frozenset((str,))
_DICT = frozenset((dict,))


class MetricConverter:
    """Converter of metrics, which warns about each name at most once.

    Conversions:

    ====================================================  =====================================
    number, bool, str, NaN, infinity                      unchanged
    NumPy or torch scalar, array or tensor of one element  number (bool, str)
    other array or tensor                                 nested lists
    dict, list, tuple                                     dict or list of converted values
    None                                                  null (an error in validation metrics)
    Enum                                                  its name
    date, datetime                                        ISO 8601 text
    bytes                                                 omitted, with one warning per name
    more than `MAX_REPORT_SIZE` numbers and characters    omitted, with one warning per name
    more than `MAX_METRICS` names                         the others omitted, with one warning
    anything else                                         TypeError
    ====================================================  =====================================

    Names are strings. Numbers and Enums as names become text, as in JSON.
    """

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def copy(
        self, metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[dict[str, Any], list[dict[str, Any]] | None]:
        """Return converted copies of the metrics of a report and of its batch metrics.

        If the metrics exceed `MAX_REPORT_SIZE`, the largest one is omitted, and if those of the batches exceed
        `MAX_COPY_SIZE`, the largest one in all batches. This is repeated until they are small enough.

        Args:
            metrics: values by name.
            batch_metrics: one mapping per batch, or None.

        Raises:
            TypeError: a value or name is not JSON-compatible. The message names the metric.
            ValueError: a name is empty or not unique in JSON.
        """
        (copied,) = self._within(MAX_REPORT_SIZE, (metrics,), "")
        if batch_metrics is None:
            return copied, None
        return copied, self._within(MAX_COPY_SIZE, batch_metrics, "of each batch ")

    def copy_all(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a converted copy of values that are not a report.

        Raises:
            TypeError: as in `copy`.
            ValueError: as in `copy`, or there are more than `MAX_COPY_SIZE` numbers and characters.
        """
        return self._metrics(values, _Room(MAX_COPY_SIZE))

    def _within(self, size: int, mappings: Sequence[Mapping[str, Any]], which: str) -> list[dict[str, Any]]:
        """Return converted copies without the largest metrics if these exceed a size.

        Args:
            size: maximum number of numbers and characters of all copies.
            mappings: the metrics, or those of each batch.
            which: description of the metrics for warnings.
        """
        if (flat := _copy_flat(mappings, size)) is not None:
            return flat
        room = _Room(size)
        try:
            return [self._metrics(metrics, room) for metrics in mappings]
        except _TooLarge:
            room, sizes = _Room(size), _Sizes()
        copies = [self._metrics(metrics, room, sizes) for metrics in mappings]
        for name in sizes.omitted:
            self._warn(name, f"{which}is left out, because its report {room.problem}")
        return copies

    def _metrics(self, metrics: Mapping[str, Any], room: _Room, sizes: _Sizes | None = None) -> dict[str, Any]:
        """Return converted copies of metrics.

        Args:
            metrics: values by name.
            room: the limit, from which the metrics take their parts.
            sizes: sizes of all metrics, of which the largest ones are omitted if the limit is exceeded. None = the
                limit must not be exceeded.

        Raises:
            _TooLarge: the limit is exceeded, and ``sizes`` is None.
            TypeError: as in `copy`.
            ValueError: as in `copy`.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metrics are a {_kind(metrics)}; expected a mapping such as {{'loss': 0.5}}")
        copied: dict[str, Any] = {}
        for number, (key, value) in enumerate(metrics.items()):
            if number == MAX_METRICS:
                self._warn(
                    key, f"and all after it are left out, because a report may have {MAX_METRICS:,} metrics; {_INSTEAD}"
                )
                break
            if sizes and key in sizes.omitted:
                continue
            if isinstance(value, (bytes, bytearray)):
                self._warn(key, "is bytes, which are not recorded; report a number, a string or a list")
                continue
            try:
                if key == "":
                    raise ValueError("has no name; expected one such as 'loss'")
                if sizes is None:
                    _put(copied, key, _plain(value, room, _DEEPEST))
                else:
                    sizes.put(copied, key, value, room)
            except (TypeError, ValueError) as error:
                raise type(error)(f"metric {key!r} {error}") from error
        return copied

    def _warn(self, name: Any, problem: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("metric %r %s", name, problem)


def to_float(value: Any) -> float:
    """Return a number as a float.

    Args:
        value: a number, or a scalar, array or tensor that contains exactly one.

    Raises:
        TypeError: ``value`` is none of these.
    """
    try:
        converted = _plain(value, _Room(MAX_COPY_SIZE), 2)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{error}; expected one number") from error
    if isinstance(converted, (int, float)) and not isinstance(converted, bool):
        try:
            return float(converted)
        except OverflowError:
            raise TypeError("is an integer above 1.7e308; expected one number") from None
    raise TypeError(f"is a {_kind(value)}; expected one number")


def to_steps(value: Any) -> int:
    """Return a number of completed steps as an integer.

    Args:
        value: an integer, or a float without a fractional part such as 5.0, of any library.

    Raises:
        TypeError: ``value`` is not such a number.
        ValueError: ``value`` is negative or too large.
    """
    try:
        steps = index(value)
    except TypeError:
        if not (isinstance(value, Real) and float(value).is_integer()):
            raise TypeError(f"steps_completed is {value!r}; expected an integer such as 100") from None
        steps = int(float(value))
    if not 0 <= steps <= MAX_STEPS:
        raise ValueError(f"steps_completed is {steps}; expected the number of batches trained so far, 0 to {MAX_STEPS}")
    return steps


class _TooLarge(ValueError):
    """The limit of a `_Room` is exceeded."""


class _Room:
    """Remaining part of a limit on numbers and characters."""

    __slots__ = ("left", "size")

    def __init__(self, size: int) -> None:
        self.size = self.left = size

    def take(self, count: int) -> None:
        """Subtract numbers or characters from the remaining part.

        Raises:
            _TooLarge: the limit is exceeded.
        """
        self.left -= count
        if self.left < 0:
            raise _TooLarge(self.problem)

    @property
    def problem(self) -> str:
        """Description of what exceeds the limit."""
        return f"exceeds the {self.size:,} numbers and characters that it may hold; {_INSTEAD}"


class _Sizes:
    """Sizes of the metrics of several mappings, of which the largest ones are omitted if a limit is exceeded."""

    def __init__(self) -> None:
        self.omitted: dict[Any, None] = {}
        self._sizes: dict[Any, int] = {}
        self._order: dict[Any, int] = {}
        self._copies: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
        self._largest: list[tuple[int, int, Any]] = []
        """Heap of negative sizes, orders and names. Entries of sizes that have changed since are outdated."""

    def put(self, copied: dict[str, Any], name: Any, value: Any, room: _Room) -> None:
        """Convert a metric and put it into a copy, unless it is the largest one and there is no room.

        Args:
            copied: the copy.
            name: name of the metric.
            value: its value.
            room: the limit.
        """
        while name not in self.omitted:
            left = room.left
            try:
                _put(copied, name, _plain(value, room, _DEEPEST))
            except _TooLarge:
                used, room.left = left - room.left, left
                room.left += self._omit_largest(self._entry(name, used))
            else:
                entry = self._entry(name, left - room.left)
                self._sizes[name] = -entry[0]
                self._copies[name].append(copied)
                heapq.heappush(self._largest, entry)
                return

    def _entry(self, name: Any, more: int) -> tuple[int, int, Any]:
        return -self._sizes.get(name, 0) - more, self._order.setdefault(name, len(self._order)), name

    def _omit_largest(self, candidate: tuple[int, int, Any]) -> int:
        """Remove the largest metric, which may be the candidate, from all copies, and return its size in them."""
        while self._largest and self._sizes.get(self._largest[0][2]) != -self._largest[0][0]:
            heapq.heappop(self._largest)
        name = min([candidate, *self._largest[:1]])[2]
        self.omitted[name] = None
        for copied in self._copies.pop(name, ()):
            del copied[_name(name)]
        return self._sizes.pop(name, 0)


def _plain(value: Any, room: _Room, levels: int) -> Any:
    if type(value) in _FLAT:
        room.take(1)
        return value
    if value is None:
        return None
    if isinstance(value, Enum):  # before str and int, because an enum may also be one of these
        return value.name
    if isinstance(value, str):
        room.take(len(value))
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if not levels:
        raise TypeError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        converted: dict[str, Any] = {}
        for key, item in value.items():
            _put(converted, key, _plain(item, room, levels - 1))
        return converted
    if isinstance(value, (list, tuple)):
        return _list(value, room, levels)
    return _plain(_unwrapped(value, room), room, levels - 1)


def _list(value: Sequence[Any], room: _Room, levels: int) -> list[Any]:
    if _FLAT.issuperset(map(type, value)):
        room.take(len(value))
        return list(value)
    return [_plain(item, room, levels - 1) for item in value]


def _unwrapped(value: Any, room: _Room) -> Any:
    """Return the content of an array or tensor, or the value of another library's number, as built-in types.

    The libraries are not imported. Their types are recognized by attributes.
    """
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        size = math.prod(value.shape)
        if size > room.left:
            room.take(size)  # raises an error before a list of this size is created
        inside = _asked(value, "item" if size == 1 else "tolist")
        return float(inside) if type(inside) is type(value) else inside  # item() does not convert NumPy's long double
    if isinstance(value, Real):
        return int(value) if isinstance(value, int) else float(value)
    if hasattr(value, "numpy"):  # a TensorFlow tensor
        return _asked(value, "numpy")
    raise TypeError(f"is a {_kind(value)}; expected a number, a string, an array, None, or lists and dicts of them")


def _asked(value: Any, method: str) -> Any:
    try:
        return getattr(value, method)()
    except Exception as error:
        raise TypeError(f"is a {_kind(value)} whose {method}() failed: {error}") from error


def _put(target: dict[str, Any], key: object, value: Any) -> None:
    name = _name(key)
    if name in target:
        raise ValueError(f"has two names that both become {name!r} in JSON")
    target[name] = value


def _name(key: object) -> str:
    if isinstance(key, Enum):
        return key.name
    if isinstance(key, str) or (isinstance(key, Real) and not isinstance(key, bool)):
        require_writable(str(key))
        return str(key)
    raise TypeError(f"has the name {key!r}; expected a string")


def _copy_flat(mappings: Sequence[Mapping[str, Any]], size: int) -> list[dict[str, Any]] | None:
    """Return copies of mappings, or None if something must be converted or left out.

    Most reports consist of numbers. They are checked without a call per mapping, which training would wait for.
    """
    if not _DICT.issuperset(map(type, mappings)):
        return None
    names = list(chain.from_iterable(mappings))
    values = chain.from_iterable(map(methodcaller("values"), mappings))
    if not (_FLAT.issuperset(map(type, values)) and _STRING.issuperset(map(type, names))):
        return None
    text = "".join(names)
    is_writable = "" not in names and text.isascii() and "\0" not in text
    is_small = len(names) <= size and max(map(len, mappings), default=0) <= MAX_METRICS
    return [mapping.copy() for mapping in mappings] if is_writable and is_small else None  # type: ignore[attr-defined]


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
