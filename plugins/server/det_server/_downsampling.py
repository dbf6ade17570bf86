"""Choice of the points of a long curve that a chart draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain


def extreme_positions(values: Sequence[float], intervals: int) -> list[int]:
    """Return the positions of the first and the last value, and of the least and the greatest of each interval.

    Args:
        values: values of a curve.
        intervals: number of intervals of equal length, >= 1.
    """
    length = max(math.ceil(len(values) / intervals), 2)
    blocks = (range(begin, min(begin + length, len(values))) for begin in range(0, len(values), length))
    extremes = chain.from_iterable(
        (min(block, key=values.__getitem__), max(block, key=values.__getitem__)) for block in blocks
    )
    ends = (0, len(values) - 1) if values else ()
    return sorted({*ends, *extremes})
