"""Values of charts, as JSON and CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import LONGEST_NAME, MAX_STEPS
from det_core.json_values import name_non_finite
from det_server._csv_export import csv_response
from det_server._curve_cache import Points
from det_server._json_response import JsonResponse
from det_server._refusal import RefusedError
from det_server._rendering import clean_text, format_divergence
from det_server._site import site_of
from det_server.pages._axes import AXES, Positions, positions_on
from det_server.pages._series import series_keys, sorted_groups
from det_server.pages._store_values import parse_ids, parse_number, store_of

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

_MOST_TRIALS, _MOST_POINTS = 100, 300
_LONGEST_LABEL = 40
"""Maximum number of characters of the name of an experiment in the label of a curve."""


def send_curves(request: Request) -> Response:
    """Return one metric of several trials as JSON, downsampled so that minima and maxima stay.

    A query with ``after`` receives the values of later steps only, and one with ``until`` those up to that step. One
    with ``axis`` also receives the positions of steps on that axis. With ``experiments=1``, labels of curves name their
    experiments. The note of a curve says since when the metric is NaN or infinite, and its gaps are the steps at which
    it is.
    """
    group, metric, curves = _curves(request)
    store = store_of(request)
    diverged = store.divergences(list(curves), metric, group=group)
    positions = _positions(request, group, list(curves))
    names = _names_of_experiments(store, list(curves)) if request.query_params.get("experiments") == "1" else {}
    series = [
        {
            "id": trial_id,
            "label": f"trial {trial_id}{names.get(trial_id, '')}",
            "note": format_divergence(*diverged[trial_id]) if trial_id in diverged else "",
            "x": [x for x, y in curve if math.isfinite(y)],
            "y": [y for _, y in curve if math.isfinite(y)],
            "gaps": [(x, name_non_finite(y)) for x, y in curve if not math.isfinite(y)],
            **({"positions": positions.get(trial_id, ())} if positions is not None else {}),
        }
        for trial_id, curve in curves.items()
    ]
    return JsonResponse({"series": series})


def _names_of_experiments(store: TrackingStore, trial_ids: Sequence[int]) -> dict[int, str]:
    """Return what the label of each trial has after its number, if the trials are of several experiments."""
    trials = store.trials_by_id(trial_ids, brief=True)
    wanted = {trial.experiment_id for trial in trials}
    names = {one.id: one.name for one in store.experiments_by_id(wanted, brief=True)}
    return {
        trial.id: f", {shorten(clean_text(name), _LONGEST_LABEL, placeholder='…')}"
        for trial in trials
        if (name := names.get(trial.experiment_id))
    }


def send_metric_names(request: Request) -> Response:
    """Return the keys of all metrics of several trials as JSON."""
    trial_ids = parse_ids(request.query_params.get("trials", ""), _MOST_TRIALS)
    return JsonResponse({"names": series_keys(sorted_groups(store_of(request).metric_names(trial_ids)))})


def export_curves(request: Request) -> Response:
    """Return the same as CSV."""
    group, metric, curves = _curves(request)
    rows = ((trial_id, step, name_non_finite(value)) for trial_id, curve in curves.items() for step, value in curve)
    return csv_response("curves.csv", ["trial", "batches", f"{group} {metric}"], rows)


def _curves(request: Request) -> tuple[str, str, Mapping[int, Points]]:
    query = request.query_params
    group, metric = query.get("group", ""), query.get("metric", "")
    if not 0 < len(metric) <= LONGEST_NAME or not 0 < len(group) <= LONGEST_NAME:
        raise RefusedError(400, "expected a group and a metric, such as ?trials=1,2&group=validation&metric=loss")
    points = query.get("points", str(_MOST_POINTS))
    if not (points.isascii() and points.isdigit() and len(points) <= 9 and 1 <= int(points) <= _MOST_POINTS):
        raise RefusedError(400, f"expected points from 1 to {_MOST_POINTS}")
    trial_ids = parse_ids(query.get("trials", ""), _MOST_TRIALS)
    after, until = _span(request)
    if (after, until) == (-1, MAX_STEPS):
        return group, metric, site_of(request).curves.read(trial_ids, metric, group=group, points=int(points))
    part = store_of(request).curves(
        trial_ids, metric, group=group, points=int(points), extremes=True, after=after, until=until, non_finite=True
    )
    return group, metric, part


def _span(request: Request) -> tuple[int, int]:
    """Return after which step and until which one values are wanted."""
    after, until = (request.query_params.get(name, "") for name in ("after", "until"))
    return parse_number(after, default=-1, most=MAX_STEPS), parse_number(until, default=MAX_STEPS, most=MAX_STEPS)


def _positions(request: Request, group: str, trial_ids: Sequence[int]) -> Mapping[int, Positions] | None:
    """Return the positions of steps on the wanted axis, or None if steps themselves are the positions."""
    axis, store = request.query_params.get("axis", ""), site_of(request).store
    if axis not in AXES:
        return None
    after, until = _span(request)
    return positions_on(axis, store, store.trials_by_id(trial_ids, brief=True), group, after, until)


ROUTES = [
    Route("/data/curves", send_curves),
    Route("/data/curves.csv", export_curves),
    Route("/data/metric-names", send_metric_names),
]
