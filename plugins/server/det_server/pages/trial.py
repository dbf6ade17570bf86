"""Page of one trial, with its metrics, logs, checkpoints, utilization and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import (
    SHOWN_CHECKPOINT_STATES,
    CheckpointState,
    LogLine,
    current_placement,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.text import flatten_mapping
from det_server._ansi_text import LONGEST_SHOWN_LINE, colored_segments
from det_server._csv_export import csv_response
from det_server._json_response import JsonResponse
from det_server._live_rows import results_of_trials, trial_values
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server.pages._actions import KILL_TRIAL
from det_server.pages._hyperparameters import hyperparameter_values
from det_server.pages._live_page import live
from det_server.pages._runs import last_failure, run_rows, total_costs
from det_server.pages._series import series_keys, sorted_groups
from det_server.pages._store_values import metric_of, parse_number, store_of, trial_of
from det_server.pages.utilization import utilization_charts

_FIRST_LINES = 500
"""Number of log lines on the page when it opens."""
_MOST_LINES = 2000
"""Maximum number of log lines in a response."""
_MOST_CHARACTERS = 1 << 20
"""Number of characters of shown lines after which a response has no more of them."""
_LINES_AT_ONCE = 200
"""Number of log lines that are read at once, of which each may be long."""
_MOST_CHECKPOINTS = 200
_MOST_RUNS = 100


def show_trial(request: Request) -> Response:
    """Show everything about a trial."""
    trial, store = trial_of(request), store_of(request)
    experiment = store.experiment(trial.experiment_id)
    scored = store.scored_checkpoints(
        experiment.id, trial_id=trial.id, states=SHOWN_CHECKPOINT_STATES, limit=_MOST_CHECKPOINTS, brief=True
    )
    names = sorted_groups(store.metric_names([trial.id]))
    runs = site_of(request).store.latest_runs(trial.id, limit=_MOST_RUNS)
    has_runner = store.lease_holder(experiment.id) is not None
    rows = run_rows(trial, experiment, runs)
    lines, more_lines = _read_lines(store, trial.id, _FIRST_LINES, newest=True)
    return render_page(
        request,
        "trial.html",
        trial=trial,
        experiment=experiment,
        metric=metric_of(experiment),
        live=trial_values(store, results_of_trials(store, [trial]))[trial.id],
        placement=current_placement(trial),
        hyperparameters=hyperparameter_values(trial),
        charts=_charts(trial.id, names),
        metric_keys=series_keys(names),
        checkpoints=scored,
        registered=store.registered_checkpoints(experiment.id),
        completed=CheckpointState.COMPLETED,
        completed_checkpoints=store.experiment_summaries([experiment.id])[experiment.id].checkpoints,
        runs=rows[::-1],
        costs=total_costs(rows),
        failure=last_failure(trial, experiment, runs, has_runner=has_runner),
        lines=lines,
        more_lines=more_lines,
        usage=utilization_charts(store, trial.id),
        kill=KILL_TRIAL if not trial.state.final and has_runner else None,
    )


def send_logs(request: Request) -> Response:
    """Return log lines of a trial as JSON, as pieces of plain text with names of style classes.

    A query with ``before`` receives the last lines before that id, and one with ``after`` the first ones after it.
    """
    trial, query = trial_of(request), request.query_params
    after, before = (parse_number(query.get(name, ""), default=0, most=2**62) for name in ("after", "before"))
    limit = parse_number(query.get("limit", ""), default=_MOST_LINES, most=_MOST_LINES)
    newest = "before" in query
    lines, more = _read_lines(store_of(request), trial.id, limit, after=after, before=before or None, newest=newest)
    shown = [
        {"id": one.id, "rank": line_source(one), "kind": one.stdtype, "text": colored_segments(one.log)}
        for one in lines
    ]
    return JsonResponse({"lines": shown, "more": more})


def _read_lines(
    store: TrackingStore, trial_id: int, limit: int, *, after: int = 0, before: int | None = None, newest: bool
) -> tuple[list[LogLine], bool]:
    """Return the beginnings of log lines, about `_MOST_CHARACTERS` at most, and whether there may be more.

    Args:
        store: the tracking store.
        trial_id: id of the trial.
        limit: maximum number of lines.
        after: only lines with a greater id.
        before: only lines with a smaller id.
        newest: whether the last of these lines are wanted, and not the first ones.
    """
    lines, characters = list[LogLine](), 0
    for line in islice(_each_line(store, trial_id, after, before, newest=newest), limit):
        lines.append(replace(line, log=line.log[:LONGEST_SHOWN_LINE]))
        characters += len(lines[-1].log)
        if characters > _MOST_CHARACTERS:
            break
    more = len(lines) == limit or characters > _MOST_CHARACTERS
    return (lines[::-1] if newest else lines), more


def _each_line(
    store: TrackingStore, trial_id: int, after: int, before: int | None, *, newest: bool
) -> Iterator[LogLine]:
    """Yield log lines in ascending order, or from the last one on in descending order."""
    while lines := store.logs(trial_id, after=after, before=before, limit=_LINES_AT_ONCE, newest=newest):
        yield from reversed(lines) if newest else lines
        after, before = (after, lines[0].id) if newest else (lines[-1].id, before)


def export_metrics(request: Request) -> Response:
    """Return all metrics of a trial as CSV, with a row per value."""
    trial = trial_of(request)
    rows = (
        (report.group, report.steps_completed, name, value)
        for report in store_of(request).metrics(trial.id)
        for name, value in flatten_mapping(report.metrics).items()
    )
    return csv_response(f"trial-{trial.id}-metrics.csv", ["group", "batches", "metric", "value"], rows)


def line_source(line: LogLine) -> str:
    """Return the rank of the worker that printed a line, or ``det`` for lines of the runner."""
    return "det" if line.stdtype == "det" else str(line.rank)


def _charts(trial_id: int, names: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[str, str]]]:
    """Return the metrics of each group with the URLs of their curves."""
    return {
        group: [
            (name, f"/data/curves{query_string({'trials': trial_id, 'group': group, 'metric': name})}")
            for name in metrics
        ]
        for group, metrics in names.items()
    }


ROUTES = [
    Route("/trials/{id:int}", live(show_trial)),
    Route("/trials/{id:int}/metrics.csv", export_metrics),
    Route("/data/logs/{id:int}", send_logs),
]
