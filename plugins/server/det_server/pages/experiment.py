"""Page of one experiment, with its learning curves and trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import (
    ExperimentRecord,
    State,
    TrialOrder,
    TrialRecord,
    TrialResult,
    is_stopped_early,
    searcher_metric,
)
from det_core.interfaces.server_store import ServerStore
from det_core.text import flatten_mapping
from det_server._csv_export import csv_response
from det_server._live_rows import experiment_values, trial_values
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server.pages._actions import possible_actions
from det_server.pages._hyperparameters import hyperparameter_columns, hyperparameter_values
from det_server.pages._list_values import NAMES, NO_VALUES, chosen_columns, read_columns, read_filtered, sort_options
from det_server.pages._live_page import live
from det_server.pages._runs import reason_of_failure
from det_server.pages._series import DrawnSeries, find_series
from det_server.pages._store_values import experiment_of, metric_of, ranked_colors, store_of
from det_server.pages._view import ListView

MOST_CURVES = 40
"""Maximum number of curves in a chart."""
_MOST_READ = 1000
"""Number of best trials whose hyperparameters are compared. Longer searches have no table of rungs."""
_TRIALS_PER_PAGE = 100
_ORDERS = {order.value: order for order in TrialOrder}
_EXPORTED = ("id", "state", "steps_completed", "progress", "restarts", "start_time", "end_time", "seed")
"""Fields of a trial in a CSV file, before those of its metric and its hyperparameters."""


def show_experiment(request: Request) -> Response:
    """Show an experiment with the curves of its best trials and a page of its trials."""
    experiment = experiment_of(request)
    store = site_of(request).store
    results = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_READ)
    view = _view(request, experiment)
    where = view.get("where")
    total, error = read_filtered(lambda: store.count_trials(experiment.id, where=where), 0)
    view = view.within(total)
    best = [result.trial.id for result in results[:MOST_CURVES]]
    drawn = find_series(store, best, view.get("series"), metric_of(experiment))
    shown: list[TrialResult] = []
    if total:
        wanted = {"where": where, **sort_options(view, _ORDERS, "best"), "limit": view.size, "offset": view.first}
        shown, error = read_filtered(lambda: store.trial_results(experiment.id, **wanted), shown)
    chosen = chosen_columns(view)
    values, unread = read_filtered(lambda: read_columns(store, [one.trial.id for one in shown], chosen), NO_VALUES)
    columns = {name: _has_numbers(name, values) for name in chosen} or _shown_hyperparameters(results)
    head = experiment_head(request, experiment)
    return render_page(
        request,
        "experiment.html",
        **head,
        view=view,
        results=bool(results),
        total=total,
        error=error or unread,
        rows=_rows(store, experiment, shown, ranked_colors(best), values),
        columns=columns,
        prefix="" if chosen else "hp.",
        sort_names=[*_ORDERS, *columns],
        rungs=_rungs([result.trial for result in results]) if len(results) < _MOST_READ else [],
        length_unit=_length_unit(experiment),
        searcher=_searcher(experiment).get("name", ""),
        live_trials=list(dict.fromkeys([*best, *(result.trial.id for result in shown)])),
        **_chart(best, drawn, head["summary"].trials),
    )


def experiment_head(request: Request, experiment: ExperimentRecord) -> dict[str, Any]:
    """Return the values for the head that all pages of an experiment share."""
    store = store_of(request)
    summaries = store.experiment_summaries([experiment.id])
    live_values = experiment_values(store, [experiment], summaries)[experiment.id]
    return {
        "experiment": experiment,
        "metric": metric_of(experiment),
        "summary": summaries[experiment.id],
        "live": live_values,
        "actions": possible_actions(experiment, bool(live_values["orphaned"])),
    }


def export_trials(request: Request) -> Response:
    """Return the trials of an experiment as CSV, with a column per hyperparameter."""
    experiment = experiment_of(request)
    results = store_of(request).trial_results(experiment.id)
    values = [hyperparameter_values(result.trial) for result in results]
    names = list(dict.fromkeys(name for one in values for name in one))
    rows = (
        [*(getattr(result.trial, name) for name in _EXPORTED), *_scores(result), *map(hyperparameters.get, names)]
        for result, hyperparameters in zip(results, values, strict=True)
    )
    columns = [*_EXPORTED, "best", "best_at", "latest", *(f"hyperparameter {name}" for name in names)]
    return csv_response(f"experiment-{experiment.id}-trials.csv", columns, rows)


def _scores(result: TrialResult) -> list[object]:
    best, latest = result.best, result.latest
    return [best.value if best else None, best.steps_completed if best else None, latest.value if latest else None]


def _view(request: Request, experiment: ExperimentRecord) -> ListView:
    _, smaller_is_better = searcher_metric(experiment.config)
    descending = ("batches",) if smaller_is_better else ("batches", "best")
    return ListView.from_query(
        request.query_params, ("series", *NAMES), order="best", size=_TRIALS_PER_PAGE, descending=descending
    )


def _has_numbers(name: str, values: Mapping[int, Mapping[str, object]]) -> bool:
    return all(isinstance(one[name], float | int | None) for one in values.values())


def _shown_hyperparameters(results: Sequence[TrialResult]) -> dict[str, bool]:
    """Return the names of the hyperparameters to show, each with whether its values are numbers."""
    trials = [result.trial for result in results]
    values = [flatten_mapping(trial.hparams) for trial in trials]
    return {
        name: all(isinstance(one.get(name), int | float | None) for one in values)
        for name in hyperparameter_columns(trials)
    }


def _rows(
    store: ServerStore,
    experiment: ExperimentRecord,
    results: Sequence[TrialResult],
    colors: Mapping[int, int],
    values: Mapping[int, Mapping[str, object]],
) -> list[dict[str, Any]]:
    live_values = trial_values(store, results)
    return [
        {
            "id": trial.id,
            "state": trial.state,
            "note": _note(store, trial, experiment),
            "live": live_values[trial.id],
            "color": colors.get(trial.id),
            "values": {**hyperparameter_values(trial), **values.get(trial.id, {})},
        }
        for trial in (result.trial for result in results)
    ]


def _note(store: ServerStore, trial: TrialRecord, experiment: ExperimentRecord) -> str:
    """Return why a trial failed, whether its search stopped it early, or how often it was started again."""
    if is_stopped_early(trial, experiment.config):
        return "stopped early"
    if trial.state is State.ERROR and (reason := reason_of_failure(trial, store.latest_runs(trial.id, limit=1))):
        return reason
    return f"{trial.restarts} restart{'s' if trial.restarts > 1 else ''}" if trial.restarts else ""


def _chart(trial_ids: Sequence[int], drawn: DrawnSeries, total: int) -> dict[str, Any]:
    ids = ",".join(map(str, trial_ids))
    values = {"trials": ids, "group": drawn.group, "metric": drawn.metric}
    few = f", the best {MOST_CURVES} of {total} trials" if total > MOST_CURVES else ""
    return {
        "chart_trials": ids,
        "series": drawn.choices,
        "chosen": drawn.key,
        "chart_title": f"{drawn.metric}, {drawn.group}{few}",
        "chart_source": f"/data/curves{query_string(values)}",
    }


def _rungs(trials: Sequence[TrialRecord]) -> list[dict[str, int]]:
    """Return for each length that the search trains to how many trials were asked to and did, the least first."""
    asked = [(trial.searcher_length or 0, _reached(trial)) for trial in trials]
    lengths = sorted({length for length, _ in asked} - {0})
    if len(lengths) < 2:
        return []
    return [
        {
            "length": rung,
            "asked": sum(length >= rung for length, _ in asked),
            "reached": sum(length > rung or (length == rung and done) for length, done in asked),
        }
        for rung in lengths
    ]


def _length_unit(experiment: ExperimentRecord) -> str:
    """Return the unit of the lengths of a search, such as ``epochs``, or "" if its config names none."""
    length = _searcher(experiment).get("max_length")
    return next(iter(length), "") if isinstance(length, Mapping) else ""


def _searcher(experiment: ExperimentRecord) -> Mapping[str, Any]:
    """Return the searcher of a config, or an empty one if the config has something else in its place."""
    found = experiment.config.get("searcher")
    return found if isinstance(found, Mapping) else {}


def _reached(trial: TrialRecord) -> bool:
    """Return whether a trial has trained to its present length."""
    return trial.ordered is None and trial.state not in (State.ERROR, State.CANCELED)


ROUTES = [
    Route("/experiments/{id:int}", live(show_experiment)),
    Route("/experiments/{id:int}/trials.csv", export_trials),
]
