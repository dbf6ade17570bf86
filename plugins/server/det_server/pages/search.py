"""Page that shows the hyperparameters of a search against its metric."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import ExperimentRecord, Run, TrialRecord, searcher_metric
from det_server._json_response import JsonResponse
from det_server._rendering import format_metric, query_string, render_page
from det_server._site import site_of
from det_server.pages._live_page import live
from det_server.pages._outcomes import outcome_word, run_spans
from det_server.pages._searched import MOST_TRIALS, drawn_series, name_of_values, plain_values, read_search
from det_server.pages._store_values import experiment_of
from det_server.pages.experiment import experiment_head

_MOST_RUNS = 10_000
"""Maximum number of runs of these trials that are drawn."""


def show_search(request: Request) -> Response:
    """Show the page, whose scripts draw the trials."""
    experiment = experiment_of(request)
    head = experiment_head(request, experiment)
    drawn = drawn_series(request, experiment)
    return render_page(
        request,
        "search.html",
        **head,
        drawn=min(head["summary"].trials, MOST_TRIALS),
        series=drawn.choices,
        chosen=drawn.key,
        shown=name_of_values(experiment, drawn),
        smaller=searcher_metric(experiment.config)[1],
        slots=_slots(experiment),
        sources={
            name: f"/data/experiments/{experiment.id}/{name}{query_string({'series': drawn.key})}"
            for name in ("trials", "importance")
        },
    )


def send_trials(request: Request) -> Response:
    """Return the trials of an experiment with their hyperparameters and runs, the best first, as JSON.

    They have the best value of the searcher's metric, or the newest one of another metric that the query names.
    """
    experiment = experiment_of(request)
    search = read_search(request, experiment)
    trial_ids = [result.trial.id for result in search.results]
    runs = defaultdict[int, list[Run]](list)
    for run in site_of(request).store.runs_of_trials(trial_ids, limit=_MOST_RUNS):
        runs[run.trial_id].append(run)
    rows = [
        _row(result.trial, experiment, search.names, search.values.get(result.trial.id), runs[result.trial.id])
        for result in search.results
    ]
    return JsonResponse(
        {
            "metric": search.metric,
            "smaller": searcher_metric(experiment.config)[1],
            "names": search.names,
            "scales": [_scale(experiment.config.get("hyperparameters", {}), name) for name in search.names],
            "now": time.time(),
            "trials": rows,
        }
    )


def _row(
    trial: TrialRecord, experiment: ExperimentRecord, names: Sequence[str], value: float | None, runs: Sequence[Run]
) -> dict[str, Any]:
    word = outcome_word(trial, experiment.config, runs)
    return {
        "id": trial.id,
        "word": word,
        "batches": trial.steps_completed,
        "value": value,
        "text": format_metric(value),
        "values": plain_values(trial, names),
        "created": trial.start_time.timestamp(),
        "runs": run_spans(runs, word),
    }


def _slots(experiment: ExperimentRecord) -> int:
    """Return the number of slots of each trial."""
    resources = experiment.config.get("resources")
    slots = resources.get("slots_per_trial") if isinstance(resources, Mapping) else None
    return slots if isinstance(slots, int) else 1


def _scale(space: Any, name: str) -> str:
    """Return ``log`` for hyperparameters that the config samples on a log scale."""
    kinds = (one.get("type") for one in _definitions(space, name.split(".")) if isinstance(one, dict))
    return "log" if "log" in kinds else "linear"


def _definitions(space: Any, parts: Sequence[str]) -> Iterator[Any]:
    """Yield what a config has at a dotted name, also within the items of categoricals."""
    if isinstance(space, dict) and space.get("type") == "categorical":
        options = space.get("vals")
        for option in options if isinstance(options, list) else ():
            yield from _definitions(option, parts)
    elif not parts:
        yield space
    elif isinstance(space, dict):
        yield from _definitions(space.get(parts[0]), parts[1:])


ROUTES = [
    Route("/experiments/{id:int}/search", live(show_search)),
    Route("/data/experiments/{id:int}/trials", send_trials),
]
