"""Column types, which define how Python values are stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

from det_core.errors import CallTooLarge, TrackingError
from det_core.interfaces.records import (
    LARGEST_VALUE,
    LONGEST_LABEL,
    LONGEST_NAME,
    MAX_LABELS,
    require_writable,
)
from det_core.json_values import (
    NON_FINITE,
    dump_json_value,
    load_json_value,
    name_non_finite,
    require_short_names,
    to_json_types,
)
from det_core.tracking.reading_limits import count_read, count_read_json

_strict = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

_SHORT = 8 << 10
"""Number of characters of JSON up to which nested names are short enough in any case."""
FINITE = (-sys.float_info.max, sys.float_info.max)
"""Lowest and highest finite number."""


def dump_metrics(value: Any) -> str:
    """Return strict JSON, which SQL can read. NaN and infinities become strings.

    Raises:
        UnwritableText: SQL cannot read a name or a string.
        TypeError: the value is not JSON-compatible.
    """
    try:
        text = _strict(value)
    except (TypeError, ValueError):
        text = _strict(_named(to_json_types(value)))
    if "\\u0000" in text or "\\ud" in text:  # \ud also starts valid surrogate pairs
        _require_writable(json.loads(text))
    return text


def _require_writable(value: Any) -> None:
    if isinstance(value, str):
        require_writable(value)
    elif isinstance(value, (dict, list)):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _require_writable(item)


def load_metrics(text: str) -> Any:
    """Return the value that `dump_metrics` encoded, including NaN and infinities."""
    value = load_json_value(text)
    return _numbered(value) if '"NaN"' in text or 'Infinity"' in text else value


def make_writable(text: str) -> str:
    """Return text without NUL and lone surrogates, which databases reject. They are replaced by other characters."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def finite_or_none(value: object) -> float | None:
    """Return a metric as a number, or None if it is not a finite number."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and abs(value) <= FINITE[1] else None  # type: ignore[arg-type]


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return name_non_finite(value) if isinstance(value, float) else value


def _numbered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbered(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbered(item) for item in value]
    # A metric with the *string* "NaN" is indistinguishable and is read as the number.
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


class PlainText(TypeDecorator[str]):
    """Text that every database can store. Other text raises UnwritableText, and other values TrackingError."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        _require_text(value)
        text = self._shortened(value)  # first, because reading all of a long text takes time
        require_writable(text)
        return text

    def _shortened(self, text: str) -> str:
        return text


def _require_text(value: object) -> None:
    if not isinstance(value, str):
        raise TrackingError(f"expected text instead of {value!r:.100}")


class Json(TypeDecorator[Any]):
    """JSON value that is stored as text, so that every database returns it unchanged and in the same order.

    Args:
        most: maximum number of characters. More raise CallTooLarge, as do nested names that are too long to be shown.
    """

    impl = Text
    cache_ok = True
    _dump = staticmethod(dump_json_value)
    _load = staticmethod(load_json_value)

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        text = None if value is None else _require_small(self._dump(value), self.most)
        if text is not None and self.most is not None and len(text) > _SHORT and isinstance(value, Mapping):
            require_short_names(value)
        return text

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        count_read_json(value)
        return self._load(value)


class _SmallText(PlainText):
    """Text that raises CallTooLarge if it is too large."""

    cache_ok = True
    _most: int

    def _shortened(self, text: str) -> str:
        return _require_small(text, self._most)


class NameText(_SmallText):
    """Name of which there are many."""

    cache_ok = True
    _most = LONGEST_NAME


class ListedText(_SmallText):
    """Text of records that lists read the beginnings of. It counts for `limited_reading`."""

    cache_ok = True
    _most = LARGEST_VALUE

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return _counted(value)


class MessageText(PlainText):
    """Text about what happened, which lists read the beginnings of. It counts for `limited_reading`.

    The end of one that is too large is left out, not the event.
    """

    cache_ok = True

    def _shortened(self, text: str) -> str:
        return text[:LARGEST_VALUE]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return _counted(value)


class ListedJson(Json):
    """JSON value that lists leave out."""

    cache_ok = True


def _counted(text: str | None) -> str | None:
    if text is not None:
        count_read(len(text))
    return text


def _require_small(text: str, most: int | None) -> str:
    if most is not None and len(text) > most:
        raise CallTooLarge(f"{text[:40]!r}… has {len(text)} characters; expected at most {most}: put data into files")
    return text


class Labels(Json):
    """List of labels, which all lists show. Too many of them, too long ones, and other values raise TrackingError."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if not isinstance(value, (list, tuple)):
            raise TrackingError(f"expected a list of labels instead of {value!r:.100}")
        for label in value:
            _require_text(label)
        longest = max(map(len, value), default=0)
        if len(value) > MAX_LABELS or longest > LONGEST_LABEL:
            raise TrackingError(
                f"{len(value)} labels of up to {longest} characters; expected at most {MAX_LABELS} of {LONGEST_LABEL}"
            )
        return super().process_bind_param(value, dialect)


class MetricsJson(Json):
    """Metrics that are stored as text that the database's own JSON functions can read."""

    cache_ok = True
    _dump = staticmethod(dump_metrics)
    _load = staticmethod(load_metrics)


class UtcTime(TypeDecorator[datetime]):
    """Timezone-aware time that is stored in UTC, with microseconds."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(timezone.utc)


def time_of(seconds: float) -> datetime:
    """Return the time of a database's clock in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc)
