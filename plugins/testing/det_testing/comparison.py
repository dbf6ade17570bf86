"""Bitwise comparison of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bitwise_form(value: Any) -> Any:
    """Return a form of the value for which ``==`` compares every bit.

    It handles floats, arrays, and tensors that ``numpy()`` converts to arrays, also in nested containers.
    """
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: bitwise_form(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bitwise_form(item) for item in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return str(value.dtype), tuple(value.shape), value.tobytes()
    return value
