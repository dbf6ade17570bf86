"""Page that compares trials of any experiments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import TrialRecord
from det_server._live_rows import results_of_trials, trial_values
from det_server._rendering import query_string, render_page
from det_server.pages._hyperparameters import hyperparameter_values
from det_server.pages._live_page import live
from det_server.pages._series import find_series
from det_server.pages._store_values import metric_of, parse_ids, ranked_colors, store_of

_MOST_TRIALS, _MOST_NAMED, _MOST_HYPERPARAMETERS = 40, 1000, 1000


def show_compare(request: Request) -> Response:
    """Show the curves and the differences of the trials that the URL names."""
    store = store_of(request)
    named = parse_ids(",".join(request.query_params.getlist("trials")).replace(" ", "").strip(","), _MOST_NAMED)
    wanted = named[:_MOST_TRIALS]
    trials = store.trials_by_id(wanted)
    ids = [trial.id for trial in trials]
    experiments = {one.id: one for one in store.experiments_by_id({trial.experiment_id for trial in trials})}
    metric = metric_of(experiments[trials[0].experiment_id]) if trials else ""
    drawn = find_series(store, ids, request.query_params.get("series", ""), metric)
    names = {"trials": ",".join(map(str, ids)), "group": drawn.group, "metric": drawn.metric}
    return render_page(
        request,
        "compare.html",
        trials=trials,
        ids=",".join(map(str, ids)),
        left_out=len(named) - len(wanted),
        missing=[identity for identity in wanted if identity not in ids],
        experiments=experiments,
        colors=ranked_colors(ids),
        metrics={trial.id: metric_of(experiments[trial.experiment_id]) for trial in trials},
        live=trial_values(store, results_of_trials(store, trials)),
        series=drawn.choices,
        chosen=drawn.key,
        chart_title=f"{drawn.metric}, {drawn.group}",
        chart_source=f"/data/curves{query_string(names)}",
        hyperparameters=_differences(trials),
    )


def _differences(trials: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Return the values of each hyperparameter, those that differ first."""
    values = [hyperparameter_values(trial) for trial in trials]
    names = dict.fromkeys(name for one in values for name in one)
    rows = [_row(name, [one.get(name) for one in values]) for name in islice(names, _MOST_HYPERPARAMETERS)]
    return sorted(rows, key=lambda row: not row["differs"])


def _row(name: str, cells: list[Any]) -> dict[str, Any]:
    return {"name": name, "cells": cells, "differs": len({repr(value) for value in cells}) > 1}


ROUTES = [Route("/compare", live(show_compare))]
