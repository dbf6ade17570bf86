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

from det_core.interfaces.records import ExperimentRecord, ExperimentSummary, State
from det_server._csv_export import csv_response, read_in_parts
from det_server._live_rows import experiment_values
from det_server._rendering import render_page, state_word
from det_server._site import site_of
from det_server.pages._actions import BULK_ACTIONS
from det_server.pages._list_values import NAMES, chosen_columns, read_columns, read_filtered, sort_options
from det_server.pages._live_page import live
from det_server.pages._store_values import metric_of, sparklines, store_of
from det_server.pages._view import ListView

_ORDERS = {name: name for name in ("id", "name", "state", "progress", "start_time", "owner")}
_DESCENDING = ("id", "start_time", "progress")
_FILTERS = ("state", "name", "label", "archived", *NAMES)
_OPTIONAL = ("metric", "curve", "trials", "took", "started", "owner")
"""Columns that a list has unless its URL names others."""
_OF_EXPERIMENT = (*_OPTIONAL, "project", "workspace")
"""Columns that are not values of the best trial."""
_SORT_NAMES = {**{name: name for name in _ORDERS}, "start_time": "started", "best": "best"}
"""Sort keys that the page offers, with their names. Any hyperparameter or metric is one, too."""
_COMMAND_ORDERS = {"start_time": "started"}
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
    rows: list[dict[str, Any]] = []
    if total:
        rows, error = read_filtered(lambda: _rows(request, view, columns), rows)
    return render_page(
        request,
        "experiments.html",
        view=view,
        rows=rows,
        newest=max((one["id"] for one in rows), default=0) if not view.values else None,
        total=total,
        error=error,
        columns=columns,
        sort_names=_SORT_NAMES,
        bulk_actions=BULK_ACTIONS,
        states=_STATES,
        command=_command(view),
    )


def export_experiments(request: Request) -> Response:
    """Return the experiments that match the filters of the URL as CSV."""
    rows = islice(read_in_parts(partial(_exported_rows, request, _view(request))), _MOST_EXPORTED)
    return csv_response("experiments.csv", [*_COLUMNS, "metric", "best", "best_trial", "trials", "checkpoints"], rows)


def _exported_rows(request: Request, view: ListView, limit: int, offset: int) -> list[list[object]]:
    experiments = _matching(request, view, limit, offset)
    summaries = store_of(request).experiment_summaries([one.id for one in experiments])
    return [[getattr(one, name) for name in _COLUMNS] + _summary_cells(one, summaries) for one in experiments]


_COLUMNS = ("id", "name", "state", "progress", "start_time", "end_time", "owner", "labels", "archived", "error")


def _summary_cells(experiment: ExperimentRecord, summaries: Mapping[int, ExperimentSummary]) -> list[object]:
    summary = summaries[experiment.id]
    best = summary.best.value if summary.best else None
    return [metric_of(experiment), best, summary.best_trial_id, summary.trials, summary.checkpoints]


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


def _matching(request: Request, view: ListView, limit: int, offset: int = 0) -> list[ExperimentRecord]:
    wanted = {**_filters(view), **sort_options(view, _ORDERS, "id")}
    return store_of(request).experiments(**wanted, limit=limit, offset=offset)


def _rows(request: Request, view: ListView, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the experiments of a page, with values of the best trial of each."""
    store = site_of(request).store
    experiments = _matching(request, view, limit=view.size, offset=view.first)
    summaries = store.experiment_summaries([one.id for one in experiments])
    best = dict(_best_trials(experiments, summaries))
    curves = sparklines(store, best.items()) if "curve" in columns else {}
    values = read_columns(store, best, [name for name in columns if name not in _OF_EXPERIMENT])
    live_values = experiment_values(store, experiments, summaries)
    return [
        {
            **{name: getattr(one, name) for name in _COLUMNS},
            "metric": metric_of(one),
            "values": {
                **values.get(summaries[one.id].best_trial_id or 0, {}),
                **{name: str(one.config.get(name) or "") for name in ("project", "workspace") if name in columns},
            },
            "spark": curves.get(summaries[one.id].best_trial_id or 0, ""),
            "live": live_values[one.id],
        }
        for one in experiments
    ]


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
    words = [f"{option} {shlex.quote(value)}" for option, value in options if value]
    words += ["--all"] if view.get("archived") else []
    words += [f"--sort-by {shlex.quote(_COMMAND_ORDERS.get(view.order, view.order))}"] if view.order != "id" else []
    words += ["--reverse"] if view.reverse else []
    return " ".join(["det experiment list", *words])


ROUTES = [
    Route("/", redirect_home),
    Route("/experiments", live(show_experiments)),
    Route("/experiments.csv", export_experiments),
]
