"""Values that several pages read from the tracking store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from det_core.errors import RecordNotFound
from det_core.interfaces.records import CHECKPOINT_ID, ExperimentRecord, TrialRecord, searcher_metric
from det_server._refusal import RefusedError
from det_server._site import site_of

if TYPE_CHECKING:
    from det_core.interfaces.model_records import ModelRecord
    from det_core.interfaces.tracking import TrackingStore

_IDS = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*")
_SPARK_POINTS, _SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_MARGIN = 40, 96.0, 24.0, 2
_COLORS = 10
"""Number of colours of charts."""

_Record = TypeVar("_Record")
Curve = Sequence[tuple[int, float]]
"""Pairs of step and value."""


def store_of(request: Request) -> TrackingStore:
    """Return the tracking store of the server."""
    return site_of(request).store


def experiment_of(request: Request) -> ExperimentRecord:
    """Return the experiment that the URL names. Raises HTTPException if there is none."""
    return _named(request, store_of(request).experiment)


def trial_of(request: Request) -> TrialRecord:
    """Return the trial that the URL names. Raises HTTPException if there is none."""
    return _named(request, store_of(request).trial)


def model_of(request: Request) -> ModelRecord:
    """Return the model that the URL names. Raises HTTPException if there is none."""
    return _named(request, store_of(request).model)


def _named(request: Request, read: Callable[[int], _Record]) -> _Record:
    try:
        return read(request.path_params["id"])
    except RecordNotFound as error:
        raise HTTPException(404) from error


def require_uuid(uuid: str, status: int = 404) -> str:
    """Return the id of a checkpoint.

    Args:
        uuid: the id.
        status: HTTP status if it cannot be one.

    Raises:
        RefusedError: it cannot be one.
    """
    if not CHECKPOINT_ID.fullmatch(uuid):
        raise RefusedError(status, "there is no such checkpoint; expected letters, digits, - and _ as its id")
    return uuid


def parse_ids(text: str, most: int) -> list[int]:
    """Return the ids in a text like ``1,2,3``, without repetitions.

    Args:
        text: ids separated by commas, or "".
        most: maximum number of ids. The others are ignored.

    Raises:
        RefusedError: the text has another form.
    """
    if text and not _IDS.fullmatch(text):
        raise RefusedError(400, f"expected ids separated by commas, such as 1,2,3; got {text!r:.100}")
    return list(dict.fromkeys(map(int, text.split(",")[:most]))) if text else []


def parse_number(text: str, *, default: int, most: int) -> int:
    """Return the number in a text, at most ``most``, or the default if the text is no number of at least 0."""
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else default


def metric_of(experiment: ExperimentRecord) -> str:
    """Return the searcher's metric of an experiment, or ""."""
    return searcher_metric(experiment.config)[0]


def sparklines(store: TrackingStore, trials: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Return the points of a small curve for each trial that has one.

    Args:
        store: the tracking store.
        trials: trial ids with their metrics.
    """
    by_metric: dict[str, list[int]] = {}
    for trial_id, metric in trials:
        by_metric.setdefault(metric, []).append(trial_id)
    found: dict[int, str] = {}
    for metric, ids in by_metric.items():
        curves = store.curves(ids, metric, group="validation", points=_SPARK_POINTS)
        found |= {trial_id: _svg_points(curve) for trial_id, curve in curves.items() if len(curve) > 1}
    return found


def _svg_points(curve: Curve) -> str:
    """Return the points of a small curve as an attribute of an SVG polyline."""
    (first, last), values = (curve[0][0], curve[-1][0]), [value for _, value in curve]
    lowest, highest = min(values), max(values)
    across = (_SPARK_WIDTH - 2 * _SPARK_MARGIN) / ((last - first) or 1)
    up = (_SPARK_HEIGHT - 2 * _SPARK_MARGIN) / ((highest - lowest) or 1)
    bottom = _SPARK_HEIGHT - _SPARK_MARGIN
    return " ".join(
        f"{_SPARK_MARGIN + (step - first) * across:.1f},{bottom - (value - lowest) * up:.1f}" for step, value in curve
    )


def ranked_colors(ids: Collection[int]) -> dict[int, int]:
    """Return the colour number of each of the best trials, given best first."""
    return {trial_id: rank for rank, trial_id in enumerate(list(ids)[:_COLORS])}
