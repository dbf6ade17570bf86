"""Pictures of curves for pages without scripts, as numbers of an SVG element."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 400
"""Size of a picture in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 44
_TICKS_ACROSS, _TICKS_UP = 8, 6
_GREATEST_EXPONENT = sys.float_info.max_10_exp

Pairs = Sequence[tuple[int, float]]
"""Pairs of step and value, or of step and position on another axis."""


@dataclass(frozen=True)
class Line:
    """Curve of a trial.

    Args:
        trial_id: the trial.
        path: the parts of the curve with numbers, as the data of an SVG path.
        crosses: positions of the beginnings of parts that are NaN or infinite, as the data of an SVG path.
    """

    trial_id: int
    path: str
    crosses: str


@dataclass(frozen=True)
class Picture:
    """Curves and axes.

    Args:
        lines: the curves.
        across: positions and values of the ticks of the horizontal axis.
        up: those of the vertical axis.
    """

    lines: Sequence[Line]
    across: Sequence[tuple[float, float]]
    up: Sequence[tuple[float, float]]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def draw_curves(curves: Mapping[int, Pairs], positions: Mapping[int, Pairs] | None = None, *, log: bool) -> Picture:
    """Return the picture of curves, some of whose values may be NaN or infinite.

    Args:
        curves: pairs of step and value by trial.
        positions: pairs of step and position on the horizontal axis by trial, or None if steps are the positions.
        log: whether the vertical axis has a log scale, on which only positive numbers are.
    """
    placed = {
        trial_id: _placed(curve, positions.get(trial_id, ()) if positions is not None else None)
        for trial_id, curve in curves.items()
    }
    points = [point for curve in placed.values() for point in curve]
    least = 0.0 if log else -math.inf
    values = [y for _, y in points if math.isfinite(y) and y > least]
    x_range = _range([x for x, _ in points], 0.0)
    y_range = _range(map(math.log10, values) if log else values, 0.05)
    place_x = _scale(x_range, _LEFT, WIDTH - _RIGHT)
    place_y = _scale(y_range, HEIGHT - _BOTTOM, _TOP)

    def place(value: float) -> float:
        return place_y(math.log10(value) if log else value)

    drawn = [_line(trial_id, curve, place_x, place, least) for trial_id, curve in placed.items() if curve]
    across = [(place_x(one), one) for one in _ticks(x_range, _TICKS_ACROSS)]
    ticks = [one for one in _ticks(y_range, _TICKS_UP) if not log or abs(one) <= _GREATEST_EXPONENT]
    up = [(place_y(one), 10**one if log else one) for one in ticks]
    return Picture(drawn, across, up)


def _placed(curve: Pairs, positions: Pairs | None) -> list[tuple[float, float]]:
    """Return a curve with its positions on the horizontal axis."""
    if positions is None:
        return [(float(step), value) for step, value in curve]
    if not positions:
        return []
    steps = [step for step, _ in positions]
    placed = ((_interpolate(step, steps, positions), value) for step, value in curve)
    return [(x, value) for x, value in placed if math.isfinite(x)]  # epochs may be any numbers


def _interpolate(step: int, steps: Sequence[int], positions: Pairs) -> float:
    """Return the position of a step on the line between its neighbours. Beyond the ends, the nearest line goes on."""
    if len(steps) == 1:
        return positions[0][1]
    right = min(max(bisect_left(steps, step), 1), len(steps) - 1)
    (x0, y0), (x1, y1) = positions[right - 1], positions[right]
    share = (step - x0) / (x1 - x0)
    return y0 * (1 - share) + y1 * share


def _line(
    trial_id: int,
    curve: Sequence[tuple[float, float]],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
    least: float,
) -> Line:
    parts: list[str] = []
    crosses: list[str] = []
    before, last_y = "M", float(HEIGHT - _BOTTOM)
    for x, y in curve:
        if not math.isfinite(y):
            if before == "L" or not (parts or crosses):
                crosses.append(f"M{place_x(x):.1f} {last_y:.1f}m-4-4l8 8m0-8l-8 8")
            before = "M"
        elif y > least:
            last_y = place_y(y)
            parts.append(f"{before}{place_x(x):.1f} {last_y:.1f}")
            before = "L"
    if len(parts) == 1:
        parts.append("h0")  # round ends of lines make it a dot
    return Line(trial_id, "".join(parts), "".join(crosses))


def _range(numbers: Iterable[float], margin: float) -> tuple[float, float]:
    """Return the least and the greatest number, with a margin, which is a share of their distance."""
    found = list(numbers)
    if not found:
        return 0.0, 1.0
    low, high = min(found), max(found)
    greatest = max(abs(low), abs(high))
    wanted = (greatest or 1.0) / 2 if low == high else (high / 2 - low / 2) * (2 * margin)
    room = max(wanted, 1e-12 * greatest, 1e-300)  # neighbours among floats have no ticks between them
    return max(low - room, -sys.float_info.max), min(high + room, sys.float_info.max)


def _scale(ends: tuple[float, float], begin: float, end: float) -> Callable[[float], float]:
    low, high = ends
    half = high / 2 - low / 2  # the whole distance may be more than the largest float
    return lambda value: begin + (value / 2 - low / 2) / half * (end - begin)


def _ticks(ends: tuple[float, float], count: int) -> list[float]:
    """Return round numbers within a range."""
    low, high = ends
    rough = high / count - low / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough), unit * 10)
    first = math.ceil(low / step)
    return [number * step for number in range(first, first + 2 * count + 1) if number * step <= high]
