"""Values of charts, as JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from det_server._csv_export import csv_response
from det_server._refusal import RefusedError
from det_server.pages._store_values import Curve, parse_ids, store_of

_MOST_TRIALS, _MOST_POINTS, _LONGEST_NAME = 100, 2000, 500


def send_curves(request: Request) -> Response:
    """Return one metric of several trials as JSON, downsampled so that minima and maxima stay."""
    _, _, curves = _curves(request)
    return JSONResponse(
        {
            "series": [
                {"id": trial_id, "label": f"trial {trial_id}", "x": [x for x, _ in curve], "y": [y for _, y in curve]}
                for trial_id, curve in curves.items()
            ]
        }
    )


def export_curves(request: Request) -> Response:
    """Return the same as CSV."""
    group, metric, curves = _curves(request)
    rows = chain.from_iterable(((trial_id, *point) for point in curve) for trial_id, curve in curves.items())
    return csv_response("curves.csv", ["trial", "batches", f"{group} {metric}"], rows)


def _curves(request: Request) -> tuple[str, str, Mapping[int, Curve]]:
    query = request.query_params
    group, metric = query.get("group", ""), query.get("metric", "")
    if not 0 < len(metric) <= _LONGEST_NAME or not 0 < len(group) <= _LONGEST_NAME:
        raise RefusedError(400, "expected a group and a metric, such as ?trials=1,2&group=validation&metric=loss")
    points = query.get("points", "300")
    if not (points.isascii() and points.isdigit() and 1 <= int(points[:9]) <= _MOST_POINTS):
        raise RefusedError(400, f"expected points from 1 to {_MOST_POINTS}")
    trial_ids = parse_ids(query.get("trials", ""), _MOST_TRIALS)
    return group, metric, store_of(request).curves(trial_ids, metric, group=group, points=int(points), extremes=True)


ROUTES = [Route("/data/curves", send_curves), Route("/data/curves.csv", export_curves)]
