"""Page with the list of experiments, and its export."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from det_core.interfaces.records import (
    EXPERIMENT_ORDERS,
    ExperimentRecord,
    ExperimentSummary,
    State,
    sort_options,
)
from det_core.interfaces.server_store import ExperimentGroup
from det_server._csv_export import csv_response, read_in_parts
from det_server._live_rows import experiment_values
from det_server._rendering import clean_text, format_number, render_page, state_word
from det_server._site import site_of
from det_server.pages._actions import BULK_ACTIONS
from det_server.pages._group_scores import describe_groups
from det_server.pages._list_values import NAMES, chosen_columns, has_numbers, read_columns, read_filtered
from det_server.pages._live_page import live
from det_server.pages._store_values import metric_of, sparklines, store_of
from det_server.pages._view import ListView

_DESCENDING = ("id", "started", "progress")
_FILTERS = ("state", "name", "label", "archived", "group", *NAMES)
_OPTIONAL = ("metric", "curve", "trials", "took", "started", "owner")
"""Columns that a list has unless its URL names others."""
_OF_CONFIG = ("project", "workspace")
_OF_EXPERIMENT = (*_OPTIONAL, "slot-hours", *_OF_CONFIG)
"""Columns that are not values of the best trial."""
_FIELDS = ("id", "name", "state", "progress", "start_time", "end_time", "owner", "labels", "archived", "error")
_ALWAYS = ("id", "name", "state", "progress", "best")
"""Columns that a list always has."""
_EXPORTED = (*_FIELDS, "metric", "best", "best_trial", "trials", "checkpoints")
"""Columns of an export unless the URL names others."""
_CELLS = (*_EXPORTED, *_OF_EXPERIMENT)
"""Columns of an export that are not values of the best trial."""
_GROUP_NAMES = (*_OF_CONFIG, "owner", "state")
"""Values by which the page offers to group. Any hyperparameter or metric is one, too."""
_SORT_KEYS = (*EXPERIMENT_ORDERS, "best")
"""Sort keys that the page offers. Any hyperparameter or metric is one, too."""
_MOST_LINKED = 50
"""Maximum number of groups to which a page links. The others follow on further pages."""
_ARCHIVED = {"yes": True, "all": None}
_STATES = [
    (state.value, f"{state_word(state)}{' at once' if state is State.STOPPING_KILLED else ''}") for state in State
]
_MOST_EXPORTED = 100_000
"""Maximum number of rows of an export."""


def redirect_home(request: Request) -> Response:
    """Send the browser to the list of experiments."""
    return RedirectResponse("/experiments", 303)


def show_experiments(request: Request) -> Response:
    """Show a page of the experiments that match the filters of the URL."""
    view = _view(request)
    total, error = read_filtered(lambda: store_of(request).count_experiments(**_filters(view)), 0)
    view = view.within(total)
    columns = chosen_columns(view) or list(_OPTIONAL)
    groups: Sequence[ExperimentGroup] = ()
    if total:
        groups, error = read_filtered(lambda: _groups(request, view), groups)
    rows = _rows(request, [one for group in groups for one in group.experiments], columns)
    values = [row["values"] for row in rows.values()]
    scores = list(describe_groups(site_of(request).store, groups))
    return render_page(
        request,
        "experiments.html",
        view=view,
        ids=list(rows),
        sections=[
            {**place, "score": score, "rows": [rows[one.id] for one in group.experiments]}
            for group, place, score in zip(groups, _places(groups, view), scores, strict=True)
        ],
        newest=max(rows, default=0) if not view.values else None,
        total=0 if error else total,
        error=error,
        columns=columns,
        numbers=[name for name in columns if name not in _OF_EXPERIMENT and has_numbers(name, values)],
        sort_names=_SORT_KEYS,
        group_names=_GROUP_NAMES,
        most_linked=_MOST_LINKED,
        bulk_actions=BULK_ACTIONS,
        states=_STATES,
        command=_command(view),
    )


def export_experiments(request: Request) -> Response:
    """Return the experiments that match the filters of the URL as CSV, with the columns that it names."""
    view = _view(request)
    chosen = [name for name in chosen_columns(view) if name != "curve"]
    names = list(dict.fromkeys([*_ALWAYS, *chosen])) if chosen else _EXPORTED
    rows = islice(read_in_parts(partial(_exported_rows, request, view, names)), _MOST_EXPORTED)
    return csv_response("experiments.csv", names, rows)


def _exported_rows(
    request: Request, view: ListView, names: Sequence[str], limit: int, offset: int
) -> list[list[object]]:
    store = site_of(request).store
    experiments = _matching(request, view, limit, offset)
    ids = [one.id for one in experiments]
    summaries = store.experiment_summaries(ids)
    seconds = store.running_seconds(ids) if "took" in names else {}
    best = dict(_best_trials(experiments, summaries))
    values = read_columns(store, best, [name for name in names if name not in _CELLS])
    rows = []
    for one in experiments:
        summary = summaries[one.id]
        cells = {**_cells(one, summary), "took": seconds.get(one.id), **values.get(summary.best_trial_id or 0, {})}
        rows.append([cells.get(name) for name in names])
    return rows


def _cells(experiment: ExperimentRecord, summary: ExperimentSummary) -> dict[str, object]:
    """Return the values of an experiment by the names of its columns."""
    return {
        **{name: getattr(experiment, name) for name in _FIELDS},
        **{name: experiment.config.get(name) for name in _OF_CONFIG},
        "started": experiment.start_time,
        "metric": metric_of(experiment),
        "best": summary.best.value if summary.best else None,
        "best_trial": summary.best_trial_id,
        "trials": summary.trials,
        "checkpoints": summary.checkpoints,
        "slot-hours": summary.slot_hours,
    }


def _view(request: Request) -> ListView:
    return ListView.from_query(request.query_params, _FILTERS, order="id", descending=_DESCENDING)


def _filters(view: ListView) -> dict[str, Any]:
    state = view.get("state")
    return {
        "states": [State(state)] if state in State.__members__ else [],
        "name": view.get("name") or None,
        "label": view.get("label") or None,
        "archived": _ARCHIVED.get(view.get("archived"), False),
        "where": view.get("where"),
    }


def _matching(request: Request, view: ListView, limit: int, offset: int) -> list[ExperimentRecord]:
    return store_of(request).experiments(**_wanted(view), limit=limit, offset=offset, brief=True)


def _wanted(view: ListView) -> dict[str, Any]:
    return {**_filters(view), **sort_options(view.order, EXPERIMENT_ORDERS), "reverse": view.reverse}


def _groups(request: Request, view: ListView) -> Sequence[ExperimentGroup]:
    """Return the groups of the list, with the experiments of a page. A list without groups is a single one."""
    if group_by := view.get("group"):
        return site_of(request).store.experiment_groups(group_by, **_wanted(view), limit=view.size, offset=view.first)
    experiments = _matching(request, view, view.size, view.first)
    return [ExperimentGroup(value=None, is_mixed=False, count=len(experiments), experiments=experiments)]


def _places(groups: Iterable[ExperimentGroup], view: ListView) -> Iterator[dict[str, Any]]:
    """Yield the name, the number of experiments and the first page of each group."""
    before = 0
    for group in groups:
        yield {"name": _name_of(group, view.get("group")), "count": group.count, "page": before // view.size + 1}
        before += group.count


def _name_of(group: ExperimentGroup, group_by: str) -> str:
    if group.is_mixed:
        return "different values"
    if group.value is None:
        return "none"
    return state_word(State[str(group.value)]) if group_by == "state" else format_number(group.value)


def _rows(
    request: Request, experiments: Sequence[ExperimentRecord], columns: Sequence[str]
) -> dict[int, dict[str, Any]]:
    """Return what a page shows of experiments by id, with values of the best trial of each."""
    store = site_of(request).store
    summaries = store.experiment_summaries([one.id for one in experiments])
    best = dict(_best_trials(experiments, summaries))
    curves = sparklines(store, best.items()) if "curve" in columns else {}
    values = read_columns(store, best, [name for name in columns if name not in _OF_EXPERIMENT])
    live_values = experiment_values(store, experiments, summaries)
    return {
        one.id: {
            **{name: getattr(one, name) for name in _FIELDS},
            "metric": metric_of(one),
            "values": {
                **values.get(summaries[one.id].best_trial_id or 0, {}),
                **{name: str(one.config.get(name) or "") for name in _OF_CONFIG if name in columns},
            },
            "spark": curves.get(summaries[one.id].best_trial_id or 0, ""),
            "live": live_values[one.id],
        }
        for one in experiments
    }


def _best_trials(
    experiments: Iterable[ExperimentRecord], summaries: Mapping[int, ExperimentSummary]
) -> Iterator[tuple[int, str]]:
    """Yield the best trial of each experiment with its metric."""
    for one in experiments:
        trial_id = summaries[one.id].best_trial_id
        if trial_id is not None:
            yield trial_id, metric_of(one)


def _command(view: ListView) -> str:
    """Return the command that lists the same experiments."""
    options = [(f"--{name}", view.get(name)) for name in ("where", "state", "name", "label")]
    # What the page would leave out might be a quote.
    words = [f"{option} {shlex.quote(clean_text(value))}" for option, value in options if value]
    words += ["--all"] if view.get("archived") else []
    words += [f"--sort-by {shlex.quote(clean_text(view.order))}"] if view.order != "id" else []
    words += ["--reverse"] if view.reverse else []
    return " ".join(["det experiment list", *words])


ROUTES = [
    Route("/", redirect_home),
    Route("/experiments", live(show_experiments)),
    Route("/experiments.csv", export_experiments),
]
