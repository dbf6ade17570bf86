"""Page that shows the hyperparameters of a search against its metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import TrialOrder, searcher_metric
from det_server._json_response import JsonResponse
from det_server._rendering import format_metric, render_page, state_word
from det_server.pages._hyperparameters import hyperparameter_columns, hyperparameter_values
from det_server.pages._live_page import live
from det_server.pages._store_values import experiment_of, store_of
from det_server.pages.experiment import experiment_head

_MOST_TRIALS = 2000
"""Maximum number of trials of a search that are drawn, the best ones."""


def show_search(request: Request) -> Response:
    """Show the page, whose scripts draw the trials."""
    experiment = experiment_of(request)
    head = experiment_head(request, experiment)
    return render_page(request, "search.html", **head, drawn=min(head["summary"].trials, _MOST_TRIALS))


def send_trials(request: Request) -> Response:
    """Return the trials of an experiment with their hyperparameters, the best first, as JSON."""
    experiment = experiment_of(request)
    metric, smaller_is_better = searcher_metric(experiment.config)
    results = store_of(request).trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_TRIALS)
    names = hyperparameter_columns(result.trial for result in results)
    rows: list[dict[str, Any]] = [
        {
            "id": result.trial.id,
            "state": result.trial.state.value,
            "word": state_word(result.trial.state),
            "batches": result.trial.steps_completed,
            "best": result.best.value if result.best else None,
            "text": format_metric(result.best.value if result.best else None),
            "values": [_plain(hyperparameter_values(result.trial).get(name)) for name in names],
        }
        for result in results
    ]
    scales = [_scale(experiment.config.get("hyperparameters", {}), name) for name in names]
    return JsonResponse(
        {"metric": metric, "smaller": smaller_is_better, "names": names, "scales": scales, "trials": rows}
    )


def _plain(value: object) -> object:
    """Return a number or text. Others become text, and numbers that JSON lacks become None."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return str(value)
    return value if value is None or abs(value) < float("inf") else None


def _scale(space: Any, name: str) -> str:
    """Return ``log`` for hyperparameters that the config samples on a log scale."""
    kinds = (one.get("type") for one in _definitions(space, name.split(".")) if isinstance(one, dict))
    return "log" if "log" in kinds else "linear"


def _definitions(space: Any, parts: Sequence[str]) -> Iterator[Any]:
    """Yield what a config has at a dotted name, also within the items of categoricals."""
    if isinstance(space, dict) and space.get("type") == "categorical":
        for option in space.get("vals", ()):
            yield from _definitions(option, parts)
    elif not parts:
        yield space
    elif isinstance(space, dict):
        yield from _definitions(space.get(parts[0]), parts[1:])


ROUTES = [
    Route("/experiments/{id:int}/search", live(show_search)),
    Route("/data/experiments/{id:int}/trials", send_trials),
]
