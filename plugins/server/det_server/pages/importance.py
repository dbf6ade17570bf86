"""Importance of the hyperparameters of a search, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_server._importances import Pending, can_compute
from det_server._json_response import JsonResponse
from det_server._site import principal_of, site_of
from det_server.pages._searched import plain_values, read_search
from det_server.pages._store_values import experiment_of

LEAST_TRIALS = 10
"""Minimum number of trials from which importances are computed."""


def send_importance(request: Request) -> Response:
    """Return how much the metric depends on each hyperparameter and how sure that is, or why it is unknown.

    Only trials that have ended count, so that the result of a search that goes on can be kept for a while.
    """
    search = read_search(request, experiment_of(request))
    ended = [
        (trial, search.values[trial.id])
        for trial in (result.trial for result in search.results)
        if trial.state.final and trial.id in search.values
    ]
    facts = {"trials": len(ended), "names": search.names}
    if not can_compute():
        return JsonResponse({**facts, "state": "missing"})
    if len(ended) < LEAST_TRIALS or not search.names:
        return JsonResponse({**facts, "state": "few", "least": LEAST_TRIALS})
    columns = [
        _positions(column) for column in zip(*(plain_values(trial, search.names) for trial, _ in ended), strict=True)
    ]
    values = [value for _, value in ended]
    found = site_of(request).importances.find(principal_of(request).name, columns, values)
    if isinstance(found, Pending):
        return JsonResponse({**facts, "state": found.value})
    return JsonResponse({**facts, "state": "known", **vars(found)})


def _positions(column: Sequence[float | str | None]) -> list[float | None]:
    """Return the positions of values in their order, on which forests depend alone, so that no number is too large."""
    positions: list[float | None] = [None] * len(column)
    value_of: Callable[[int], Any] = column.__getitem__
    for kind in (str, (int, float)):
        known = sorted((row for row, one in enumerate(column) if isinstance(one, kind)), key=value_of)
        # Nothing is looked up by its hash, which any number of large integers may share.
        for position, (_, rows) in enumerate(groupby(known, key=value_of)):
            for row in rows:
                positions[row] = position
    return positions


ROUTES = [Route("/data/experiments/{id:int}/importance", send_importance)]
