"""Page of one experiment, with its learning curves and trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import (
    TRIAL_ORDERS,
    ExperimentRecord,
    State,
    TrialOrder,
    TrialRecord,
    TrialResult,
    is_stopped_early,
    searcher_metric,
    sort_options,
)
from det_core.interfaces.server_store import RungCount, ServerStore
from det_server._csv_export import csv_response, read_in_parts
from det_server._live_rows import experiment_values, trial_values
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server.pages._actions import possible_actions
from det_server.pages._group_scores import group_trials
from det_server.pages._hyperparameters import (
    hyperparameter_columns,
    listed_values,
    name_left_out,
    values_with_short_names,
)
from det_server.pages._list_values import NAMES, NO_VALUES, chosen_columns, has_numbers, read_columns, read_filtered
from det_server.pages._live_page import live
from det_server.pages._runs import reason_of_failure
from det_server.pages._searched import MOST_TRIALS
from det_server.pages._series import DrawnSeries, find_series
from det_server.pages._store_values import experiment_of, metric_of, parse_ids, ranked_colors, store_of
from det_server.pages._view import ListView

MOST_CURVES = 40
"""Maximum number of curves in a chart."""
_MOST_READ = 1000
"""Number of best trials whose hyperparameters are compared, and of first ones that are grouped."""
_TRIALS_PER_PAGE = 100
MOST_EXPORTED = 1000
"""Maximum number of hyperparameters in a CSV file."""
_EXPORTED = ("id", "state", "steps_completed", "progress", "restarts", "start_time", "end_time", "seed")
_SCORES = ("best", "best_at", "latest")
"""Fields of a trial, and of its metric, in a CSV file."""


def show_experiment(request: Request) -> Response:
    """Show an experiment with the curves of its best trials and a page of its trials."""
    experiment = experiment_of(request)
    store = site_of(request).store
    results = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_READ, brief=True)
    view = _view(request, experiment)
    where = view.get("where")
    total, error = read_filtered(lambda: store.count_trials(experiment.id, where=where), 0)
    view = view.within(total)
    best = [result.trial.id for result in results[:MOST_CURVES]]
    drawn = find_series(store, best, view.get("series"), metric_of(experiment))
    shown: list[TrialResult] = []
    if total:
        wanted = {"where": where, **_sorted_by(view), "limit": view.size, "offset": view.first, "brief": True}
        shown, error = read_filtered(lambda: store.trial_results(experiment.id, **wanted), shown)
    groups: list[dict[str, Any]] = []
    groups, ungrouped = read_filtered(lambda: _groups(store, experiment, view), groups)
    chosen = chosen_columns(view)
    values, unread = read_filtered(lambda: read_columns(store, [one.trial.id for one in shown], chosen), NO_VALUES)
    columns = {name: has_numbers(name, values.values()) for name in chosen} or hyperparameter_columns(
        one.trial for one in results
    )
    head = experiment_head(request, experiment)
    return render_page(
        request,
        "experiment.html",
        **head,
        view=view,
        total=total,
        error=error or unread or ungrouped,
        groups=groups,
        most_grouped=_MOST_READ,
        rows=_rows(store, experiment, shown, ranked_colors(best), values),
        columns=columns,
        left_out=name_left_out(one.trial for one in shown),
        prefix="" if chosen else "hp.",
        sort_names=[*TRIAL_ORDERS, *columns],
        rungs=_rungs(store.rung_counts(experiment.id)),
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
        "version": store.code_versions([experiment.id]).get(experiment.id),
        "live": live_values,
        "actions": possible_actions(experiment, bool(live_values["orphaned"])),
    }


def export_trials(request: Request) -> Response:
    """Return the trials that a list shows as CSV, with its columns, or with one per hyperparameter.

    The query may name ``trials``, to which the list is limited.
    """
    experiment = experiment_of(request)
    view = _view(request, experiment)
    named = request.query_params.get("trials")
    only = None if named is None else parse_ids(named, MOST_TRIALS)
    wanted = {"where": view.get("where"), **_sorted_by(view), "trial_ids": only, "brief": True}
    read = partial(store_of(request).trial_results, experiment.id, **wanted)
    if chosen := chosen_columns(view):
        names = chosen
        rows: Iterable[list[object]] = read_in_parts(partial(_chosen_rows, request, read, chosen))
    else:
        hyperparameters = _hyperparameter_names(read_in_parts(read))
        rows = map(partial(_exported_with_hyperparameters, hyperparameters), read_in_parts(read))
        names = [f"hyperparameter {name}" for name in hyperparameters]
    return csv_response(f"experiment-{experiment.id}-trials.csv", [*_EXPORTED, *_SCORES, *names], rows)


def _chosen_rows(
    request: Request, read: Callable[..., Sequence[TrialResult]], names: Sequence[str], limit: int, offset: int
) -> list[list[object]]:
    results = read(limit=limit, offset=offset)
    values = read_columns(site_of(request).store, [result.trial.id for result in results], names)
    return [[*_exported(result), *map(values.get(result.trial.id, {}).get, names)] for result in results]


def _hyperparameter_names(results: Iterable[TrialResult]) -> list[str]:
    """Return the names of all hyperparameters, at most `MOST_EXPORTED`."""
    names: dict[str, None] = {}
    for result in results:
        new = (name for name in values_with_short_names(result.trial.hparams) if name not in names)
        names |= dict.fromkeys(islice(new, MOST_EXPORTED - len(names)))
    return list(names)


def _exported_with_hyperparameters(names: Sequence[str], result: TrialResult) -> list[object]:
    return [*_exported(result), *map(listed_values(result.trial.hparams).get, names)]


def _exported(result: TrialResult) -> list[object]:
    best, latest = result.best, result.latest
    scores = best and best.value, best and best.steps_completed, latest and latest.value
    return [*(getattr(result.trial, name) for name in _EXPORTED), *scores]


def _view(request: Request, experiment: ExperimentRecord) -> ListView:
    _, smaller_is_better = searcher_metric(experiment.config)
    descending = ("batches",) if smaller_is_better else ("batches", "best")
    return ListView.from_query(
        request.query_params, ("series", "group", *NAMES), order="best", size=_TRIALS_PER_PAGE, descending=descending
    )


def _groups(store: ServerStore, experiment: ExperimentRecord, view: ListView) -> list[dict[str, Any]]:
    """Return the groups of the trials that match the filter."""
    if not (name := view.get("group")):
        return []
    results = store.trial_results(experiment.id, where=view.get("where"), limit=_MOST_READ, brief=True)
    return group_trials(store, results, name, metric_of(experiment))


def _sorted_by(view: ListView) -> dict[str, Any]:
    return {**sort_options(view.order, TRIAL_ORDERS, "best"), "reverse": view.reverse}


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
            "values": {**listed_values(trial.hparams), **values.get(trial.id, {})},
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


def _rungs(counts: Sequence[RungCount]) -> list[dict[str, int]]:
    """Return for each length that the search trains to how many trials were asked to and did, the least first."""
    asked = list(accumulate(one.trials for one in reversed(counts)))[::-1]
    rungs = zip(counts, asked, strict=True)
    return [
        {"length": one.length, "asked": trials, "reached": trials - one.trials + one.reached} for one, trials in rungs
    ]


def _length_unit(experiment: ExperimentRecord) -> str:
    """Return the unit of the lengths of a search, such as ``epochs``, or "" if its config names none."""
    length = _searcher(experiment).get("max_length")
    return next(iter(length), "") if isinstance(length, Mapping) else ""


def _searcher(experiment: ExperimentRecord) -> Mapping[str, Any]:
    """Return the searcher of a config, or an empty one if the config has something else in its place."""
    found = experiment.config.get("searcher")
    return found if isinstance(found, Mapping) else {}


ROUTES = [
    Route("/experiments/{id:int}", live(show_experiment)),
    Route("/experiments/{id:int}/trials.csv", export_trials),
]
