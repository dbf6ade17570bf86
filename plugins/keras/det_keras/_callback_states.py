"""Conversion of callbacks' states to JSON-compatible values, and back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

_TYPE, _VALUE = "det.type", "value"
_PLAIN = {type(None), bool, int, float, str}


def pack_state(state: Any) -> Any:
    """Return a JSON-compatible value from which `unpack_state` makes an equal state.

    Raises:
        TypeError: the state contains an object of another type than those in the message.
    """
    kind = type(state)
    if kind in _PLAIN:
        return state
    if kind is list:
        return [pack_state(item) for item in state]
    if kind is dict and _TYPE not in state and all(type(key) is str for key in state):
        return {key: pack_state(value) for key, value in state.items()}
    if isinstance(state, np.generic):
        kind = np.generic
    if kind not in _SPLIT or (isinstance(state, np.ndarray) and state.dtype.kind not in "biufc"):
        raise TypeError(
            f"it contains {state!r}; expected None, numbers, strings, bytes, numeric NumPy arrays, and lists, tuples, "
            "sets and dicts of them"
        )
    return {_TYPE: kind.__name__, _VALUE: pack_state(_SPLIT[kind](state))}


def unpack_state(packed: Any) -> Any:
    """Return the state that `pack_state` converted."""
    if isinstance(packed, list):
        return [unpack_state(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if _TYPE in packed:
        return _JOIN[packed[_TYPE]](unpack_state(packed[_VALUE]))
    return {key: unpack_state(value) for key, value in packed.items()}


def has_array(packed: Any) -> bool:
    """Return whether a state that `pack_state` converted contains an array."""
    if isinstance(packed, dict):
        return packed.get(_TYPE) == np.ndarray.__name__ or any(map(has_array, packed.values()))
    return isinstance(packed, list) and any(map(has_array, packed))


def _split_array(array: Any) -> Any:
    return [array.dtype.str, list(array.shape), array.tobytes()]


def _join_array(parts: Any) -> Any:
    dtype, shape, data = parts
    return np.frombuffer(data, dtype).reshape(shape).copy()


_SPLIT: dict[type, Callable[[Any], Any]] = {
    tuple: list,
    set: list,
    frozenset: list,
    dict: lambda items: [list(pair) for pair in items.items()],
    bytes: lambda data: base64.b64encode(data).decode(),
    np.ndarray: _split_array,
    np.generic: lambda scalar: np.asarray(scalar),
}
_JOIN: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": base64.b64decode,
    "ndarray": _join_array,
    "generic": lambda array: array[()],
}
