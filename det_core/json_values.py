"""Conversion of Python values to JSON, and copies that consist of what JSON can represent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["name_non_finite"]

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that strict JSON cannot represent, by the text that replaces them."""

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


def copy_as_json(value: Any) -> Any:
    """Return a copy as it is after `dump_json_value` and decoding, with dicts, lists and scalars only.

    Raises:
        TypeError: a value or a key is not JSON-compatible. The error names its place.
        ValueError: the value contains itself.
    """
    return json.loads(dump_json_value(value))


def to_json_types(value: Any, where: str = "") -> Any:
    """Return a copy in which all mappings are dicts and all sequences are lists.

    Args:
        value: the value to copy.
        where: place of the value, for the error message.

    Raises:
        TypeError: a value or a key is not JSON-compatible. The error names its place.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {
            _key(key, where): to_json_types(item, f"{where}.{key}" if where else key) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_json_types(item, f"{where}[{index}]") for index, item in enumerate(value)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(
        f"{where or 'the value'!r} is a {kind}; expected numbers, strings, booleans, None, or lists and dicts of them"
    )


def name_non_finite(number: float) -> float | str:
    """Return the number, or its name in `NON_FINITE` if strict JSON cannot represent it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _key(key: object, where: str) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"{where or 'the top level'!r} has the key {key!r}; only strings can be keys")


def iter_leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings with names such as ``optimizer.lr``."""
    inner = [("", iter(values.items()))]  # no recursion, which would pass each value through all levels
    while inner:
        prefix, items = inner[-1]
        for key, value in items:
            if isinstance(value, Mapping):
                inner.append((f"{prefix}{key}.", iter(value.items())))
                break
            yield f"{prefix}{key}", value
        else:
            inner.pop()
