"""Report about a comparison, as one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from det_core.version import __version__
from det_server._curve_picture import Pairs, draw_curves
from det_server._rendering import format_number, render_text
from det_server.pages._store_values import ranked_colors

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore
    from det_server.pages._code_diff import CodeDiff
    from det_server.pages._comparison import Choice, Comparison

_POINTS = 300
_AXES = {"batch": "batches", "epoch": "epochs", "time": "running time in hours", "clock": "time of day (UTC)"}


def make_report(
    store: TrackingStore,
    comparison: Comparison,
    choice: Choice,
    code: Sequence[tuple[int, CodeDiff]],
    *,
    only_differences: bool = False,
    axis: str = "batch",
    positions: Mapping[int, Pairs] | None = None,
    log: bool = False,
) -> bytes:
    """Return a report as HTML.

    Args:
        store: the tracking store.
        comparison: what it shows.
        choice: what was asked for.
        code: differences of the code of experiments from the first one.
        only_differences: whether rows without differences are left out.
        axis: name of the horizontal axis of the curves.
        positions: positions of steps on this axis by trial, or None for batches.
        log: whether values are on a log scale.
    """
    ids = [trial.id for trial in comparison.trials]
    drawn = comparison.drawn
    curves = (
        store.curves(ids, drawn.metric, group=drawn.group, points=_POINTS, extremes=True, non_finite=True)
        if drawn.choices
        else {}
    )
    picture = draw_curves(curves, positions, log=log)
    style = render_text("report.css")
    text = render_text(
        "report.html",
        comparison=comparison,
        choice=choice,
        code=code,
        only_differences=only_differences,
        picture=picture,
        ticks=[(x, _position(value, axis)) for x, value in picture.across],
        axis=_AXES[axis],
        log=log,
        colors=ranked_colors(ids),
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        made=datetime.now(timezone.utc),
        version=__version__,
    )
    return text.encode(errors="replace")


def _position(value: float, axis: str) -> str:
    """Return the text of a position on the horizontal axis."""
    if axis == "clock":
        return _clock(value)
    return format_number(value / 3600 if axis == "time" else value)


def _clock(seconds: float) -> str:
    """Return the text of a time, or "" outside of the years 1 to 9999, to which the axis goes on from odd times."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%m-%d %H:%M")
    except (OverflowError, ValueError):
        return ""
