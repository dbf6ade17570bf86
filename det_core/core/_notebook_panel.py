"""Progress and curves of an experiment in the output of a notebook's cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

Points = Sequence[tuple[int, float]]

_POINTS = 600
"""Number of points of one curve from which every second point is dropped."""
_MARKED = 20
"""Number of points below which a curve has a marker at each point."""
_CHARTS = 4
"""Maximum number of charts."""
_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
_WIDTH, _HEIGHT = 340, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 26, 24
"""Margins around the curves."""


class NotebookPanel:
    """Element of a cell's output that shows how far an experiment is, with a chart per metric.

    Args:
        metric: name of the searcher's metric, whose chart comes first.
    """

    def __init__(self, metric: str) -> None:
        self._first = _base_name(metric)
        self._charts: dict[str, dict[str, list[tuple[int, float]]]] = {}
        self._handle = import_module("IPython.display").display({}, raw=True, display_id=True)

    def add(self, metrics: Mapping[str, Any], step: int, curve: str) -> None:
        """Add a point to the curve of each metric. Values that are no finite numbers have no point.

        Args:
            metrics: values by name.
            step: number of batches trained.
            curve: name of the curve, such as ``validation``.
        """
        for name, value in metrics.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                points = self._charts.setdefault(_base_name(name), {}).setdefault(curve, [])
                if points and step <= points[-1][0]:  # a new run starts from a checkpoint
                    points[:] = [point for point in points if point[0] < step]
                points.append((step, float(value)))
                if len(points) > _POINTS:
                    del points[1::2]

    def draw(self, words: str, done: float, result: str = "") -> None:
        """Redraw the panel.

        Args:
            words: the progress in a line.
            done: share that is done, 0 to 1.
            result: lines below the charts.
        """
        names = sorted(self._charts, key=lambda name: name != self._first)[:_CHARTS]
        charts = "".join(draw_chart(name, self._charts[name]) for name in names)
        html = f'<div><progress value="{done}"></progress> {escape(words)}</div><div>{charts}</div>'
        if result:
            html += f"<pre>{escape(result)}</pre>"
        plain = "\n".join(filter(None, (words, result)))
        self._handle.update({"text/plain": plain, "text/html": html}, raw=True)


def draw_chart(title: str, curves: Mapping[str, Points]) -> str:
    """Return a chart as SVG, which looks right on light and dark pages.

    Args:
        title: name of the metric.
        curves: at least one curve by name, each with at least one point. Only the first ten are drawn.
    """
    shown = list(zip(_COLOURS, curves.items(), strict=False))
    steps = [step for _, (_, points) in shown for step, _ in points]
    values = [value for _, (_, points) in shown for _, value in points]
    left, right, low, high = min(steps), max(steps), min(values), max(values)
    bottom, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT

    def place(step: int, value: float) -> tuple[float, float]:
        across = (step - left) / (right - left) if right > left else 0.5
        up = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5  # halves cannot overflow
        return _LEFT + across * (end - _LEFT), bottom - up * (bottom - _TOP)

    parts = [
        f'<path d="M{_LEFT} {_TOP - 6}V{bottom + 4}H{end}" fill="none" stroke="currentColor" opacity="0.4"/>',
        _label(_LEFT, 13, title, weight="bold"),
        _label(end, _HEIGHT - 6, f"batch {right}", anchor="end"),
        *([_label(_LEFT, _HEIGHT - 6, str(left))] if right > left else ()),
        *(_label(_LEFT - 5, place(left, value)[1] + 4, f"{value:.4g}", anchor="end") for value in {low, high}),
    ]
    legend = end
    for colour, (name, points) in reversed(shown):
        dots = [place(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(dots) < _MARKED:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in dots]
        if len(shown) > 1 and legend > _WIDTH / 3:
            parts.append(_label(legend, 13, name, anchor="end", colour=colour))
            legend -= 7 * len(name) + 8
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'style="margin-right:12px">{"".join(parts)}</svg>'
    )


def _label(
    x: float, y: float, text: str, *, anchor: str = "start", colour: str = "currentColor", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}" '
        f'font-size="11" font-family="sans-serif">{escape(text)}</text>'
    )


def _base_name(metric: str) -> str:
    """Return the name that a metric has in training and in validation, so that both curves share a chart."""
    return metric.removeprefix("validation_").removeprefix("val_")
