"""Functions that write the ranges of hyperparameters in a config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Categorical", "Constant", "Double", "Integer", "Log"]


def Constant(value: Any) -> dict[str, Any]:  # noqa: N802
    """Return the block of a hyperparameter that always has the same value."""
    return {"type": "const", "val": value}


def Integer(minval: int, maxval: int) -> dict[str, Any]:  # noqa: N802
    """Return the block of an integer between two bounds, both included."""
    return {"type": "int", "minval": minval, "maxval": maxval}


def Double(minval: float, maxval: float) -> dict[str, Any]:  # noqa: N802
    """Return the block of a number between two bounds."""
    return {"type": "double", "minval": minval, "maxval": maxval}


def Categorical(vals: Sequence[Any]) -> dict[str, Any]:  # noqa: N802
    """Return the block of a choice among values."""
    return {"type": "categorical", "vals": list(vals)}


def Log(minval: float, maxval: float, base: float = 10) -> dict[str, Any]:  # noqa: N802
    """Return the block of a number whose logarithm is uniformly distributed.

    Args:
        minval: logarithm of the lower bound.
        maxval: logarithm of the upper bound.
        base: base of the logarithms.
    """
    return {"type": "log", "base": base, "minval": minval, "maxval": maxval}
