"""Conversion of Python values to JSON, and copies that consist of what JSON can represent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from det_core.errors import CallTooLarge, StoreCorrupt

__all__ = ["name_non_finite"]

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that strict JSON cannot represent, by the text that replaces them."""

LONGEST_KEYS = 4 << 20
"""Maximum number of characters of the keys of a flattened mapping together, as many as a report of metrics has."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


def dump_json_value(value: Any) -> str:
    """Return JSON with Python's ``NaN`` and ``Infinity``, which only Python can read.

    Raises:
        TypeError: a value or a key is not JSON-compatible. The error names its place.
        ValueError: the value contains itself.
    """
    try:
        return _encode(value)
    except TypeError:
        return _encode(to_json_types(value))


def load_json_value(text: str) -> Any:
    """Return the value that `dump_json_value` encoded.

    Raises:
        StoreCorrupt: the text is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(
            f"a value in the database is not valid JSON ({error}): restore the database from a backup"
        ) from error


class EncodedJson(Mapping[str, Any]):
    """JSON object that is decoded on first access."""

    def __init__(self, text: str) -> None:
        self.text = text
        """The object as `dump_json_value` has encoded it."""

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    @cached_property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = load_json_value(self.text)
        return values


def copy_as_json(value: Any) -> Any:
    """Return a copy as it is after `dump_json_value` and decoding, with dicts, lists and scalars only.

    Raises:
        TypeError: a value or a key is not JSON-compatible. The error names its place.
        ValueError: the value contains itself.
    """
    return json.loads(dump_json_value(value))


def to_json_types(value: Any, *where: str | int) -> Any:
    """Return a copy in which all mappings are dicts and all sequences are lists.

    Args:
        value: the value to copy.
        where: keys and indices that lead to the value, for the error message.

    Raises:
        TypeError: a value or a key is not JSON-compatible. The error names its place.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {_key(key, where): to_json_types(item, *where, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_types(item, *where, index) for index, item in enumerate(value)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(
        f"{_place(where) or 'the value'!r} is a {kind}; "
        "expected numbers, strings, booleans, None, or lists and dicts of them"
    )


def require_short_names(values: Mapping[str, Any]) -> None:
    """Check that nested mappings can be shown as one with names such as ``optimizer.lr``.

    Raises:
        CallTooLarge: the names have more than `LONGEST_KEYS` characters together, because those of outer mappings are
            repeated.
    """
    for _ in iter_short_leaves(values):
        pass


def iter_short_leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the same as `iter_leaves`, with the error of `require_short_names`."""
    characters = 0
    for key, value in _iter_nested(values):
        characters += len(key)
        if characters > LONGEST_KEYS:
            raise CallTooLarge(
                f"names of nested values such as {key[:40]!r}… have more than {LONGEST_KEYS >> 20} MiB together; "
                "shorten the outer ones"
            )
        if value is not _INNER:
            yield key, value


def name_non_finite(number: float) -> float | str:
    """Return the number, or its name in `NON_FINITE` if strict JSON cannot represent it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _key(key: object, where: Sequence[str | int]) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{_place(where) or 'the top level'!r} has the key {key!r}; only strings can be keys")


def _place(where: Sequence[str | int]) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in where).removeprefix(".")


def iter_leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings with names such as ``optimizer.lr``."""
    return ((key, value) for key, value in _iter_nested(values) if value is not _INNER)


_INNER = object()


def _iter_nested(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the same as `iter_leaves`, and `_INNER` for each mapping on the way, whose name costs as much."""
    inner = [("", iter(values.items()))]  # no recursion, which would pass each value through all levels
    while inner:
        prefix, items = inner[-1]
        for key, value in items:
            if isinstance(value, Mapping):
                inner.append((f"{prefix}{key}.", iter(value.items())))
                yield inner[-1][0], _INNER
                break
            yield f"{prefix}{key}", value
        else:
            inner.pop()
