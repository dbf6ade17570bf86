"""Choice of the points of a long curve that a chart draws."""

from __future__ import annotations

import math
from collections.abc import Sequence


def extreme_positions(values: Sequence[float], intervals: int) -> list[int]:
    """Return the positions of the first and the last value, and of extremes of intervals.

    Those of an interval are its least and its greatest finite value, and its first one that is NaN or infinite.

    Args:
        values: values of a curve.
        intervals: number of intervals of equal length, >= 1.
    """
    length = max(math.ceil(len(values) / intervals), 2)
    kept = {0, len(values) - 1} if values else set()
    for begin in range(0, len(values), length):
        block = range(begin, min(begin + length, len(values)))
        finite = [one for one in block if math.isfinite(values[one])]
        if finite:
            kept |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
        if len(finite) < len(block):
            kept.add(next(one for one in block if not math.isfinite(values[one])))
    return sorted(kept)
