"""Page that shows the hyperparameters of a search against its metric."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import (
    ExperimentRecord,
    Run,
    TrialOrder,
    TrialRecord,
    TrialResult,
    searcher_metric,
)
from det_server._json_response import JsonResponse
from det_server._rendering import format_metric, query_string, render_page
from det_server._site import site_of
from det_server.pages._hyperparameters import hyperparameter_columns, hyperparameter_values
from det_server.pages._live_page import live
from det_server.pages._outcomes import outcome_word, run_spans
from det_server.pages._series import DrawnSeries, find_series
from det_server.pages._store_values import experiment_of, metric_of, store_of
from det_server.pages.experiment import experiment_head

if TYPE_CHECKING:
    from det_core.interfaces.server_store import ServerStore

_MOST_TRIALS = 2000
"""Maximum number of trials of a search that are drawn, the best ones."""


_MOST_RUNS = 10_000
"""Maximum number of runs of these trials that are drawn."""
_MOST_NAMED = 40
"""Number of trials in which metrics are looked for, the best ones."""


def show_search(request: Request) -> Response:
    """Show the page, whose scripts draw the trials."""
    experiment = experiment_of(request)
    head = experiment_head(request, experiment)
    drawn = _drawn_series(request, experiment)
    return render_page(
        request,
        "search.html",
        **head,
        drawn=min(head["summary"].trials, _MOST_TRIALS),
        series=drawn.choices,
        chosen=drawn.key,
        shown=_name(experiment, drawn),
        smaller=searcher_metric(experiment.config)[1],
        slots=_slots(experiment),
        source=f"/data/experiments/{experiment.id}/trials{query_string({'series': drawn.key})}",
    )


def send_trials(request: Request) -> Response:
    """Return the trials of an experiment with their hyperparameters and runs, the best first, as JSON.

    They have the best value of the searcher's metric, or the newest one of another metric that the query names.
    """
    experiment, store = experiment_of(request), site_of(request).store
    drawn = _drawn_series(request, experiment)
    results = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_TRIALS)
    names = hyperparameter_columns(result.trial for result in results)
    values = _values(store, experiment, drawn, results)
    runs = defaultdict[int, list[Run]](list)
    for run in store.runs_of_trials([result.trial.id for result in results], limit=_MOST_RUNS):
        runs[run.trial_id].append(run)
    rows = [
        _row(result.trial, experiment, names, values.get(result.trial.id), runs[result.trial.id]) for result in results
    ]
    return JsonResponse(
        {
            "metric": _name(experiment, drawn),
            "smaller": searcher_metric(experiment.config)[1],
            "names": names,
            "scales": [_scale(experiment.config.get("hyperparameters", {}), name) for name in names],
            "now": time.time(),
            "trials": rows,
        }
    )


def _row(
    trial: TrialRecord, experiment: ExperimentRecord, names: Sequence[str], value: float | None, runs: Sequence[Run]
) -> dict[str, Any]:
    word = outcome_word(trial, experiment.config, runs)
    hyperparameters = hyperparameter_values(trial)
    return {
        "id": trial.id,
        "word": word,
        "batches": trial.steps_completed,
        "value": value,
        "text": format_metric(value),
        "values": [_plain(hyperparameters.get(name)) for name in names],
        "created": trial.start_time.timestamp(),
        "runs": run_spans(runs, word),
    }


def _slots(experiment: ExperimentRecord) -> int:
    """Return the number of slots of each trial."""
    resources = experiment.config.get("resources")
    slots = resources.get("slots_per_trial") if isinstance(resources, Mapping) else None
    return slots if isinstance(slots, int) else 1


def _drawn_series(request: Request, experiment: ExperimentRecord) -> DrawnSeries:
    store = store_of(request)
    best = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_NAMED)
    return find_series(
        store, [one.trial.id for one in best], request.query_params.get("series", ""), metric_of(experiment)
    )


def _is_searched(experiment: ExperimentRecord, drawn: DrawnSeries) -> bool:
    """Return whether a metric is the one by which the search ranks trials."""
    return drawn.key in (f"validation.{metric_of(experiment)}", ".")


def _name(experiment: ExperimentRecord, drawn: DrawnSeries) -> str:
    """Return the name of the values that are drawn, which are the best ones or the newest ones."""
    if _is_searched(experiment, drawn):
        return metric_of(experiment)
    return f"last {drawn.metric}" if drawn.group == "validation" else f"last {drawn.metric}, {drawn.group}"


def _values(
    store: ServerStore, experiment: ExperimentRecord, drawn: DrawnSeries, results: Sequence[TrialResult]
) -> dict[int, float]:
    if _is_searched(experiment, drawn):
        return {one.trial.id: one.best.value for one in results if one.best}
    newest = store.latest_values([one.trial.id for one in results], drawn.metric, group=drawn.group)
    return {trial_id: value for trial_id, (_, value) in newest.items()}


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
