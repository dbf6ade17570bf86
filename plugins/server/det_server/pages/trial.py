"""Page of one trial, with its metrics, logs, checkpoints, utilization and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import (
    LOG_LEVELS,
    SHOWN_CHECKPOINT_STATES,
    CheckpointState,
    current_placement,
)
from det_core.text import flatten_mapping
from det_server._csv_export import csv_response
from det_server._live_rows import results_of_trials, trial_values
from det_server._rendering import query_string, render_page
from det_server._site import site_of
from det_server.pages._actions import KILL_TRIAL
from det_server.pages._hyperparameters import hyperparameter_values
from det_server.pages._live_page import live
from det_server.pages._origins import origins_of
from det_server.pages._runs import last_failure, run_rows, total_costs
from det_server.pages._series import series_keys, sorted_groups
from det_server.pages._store_values import metric_of, store_of, trial_of
from det_server.pages.logs import FIRST_LINES, filter_of, filter_values, line_values, read_lines
from det_server.pages.utilization import utilization_charts

_MOST_CHECKPOINTS = 200
_MOST_RUNS = 100
_MOST_MACHINES = 500
_MOST_RANKS = 16
"""Maximum number of ranks to whose errors a link leads."""


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
    machines = store.machines(trial.id, limit=_MOST_MACHINES, brief=True)
    rows = run_rows(trial, experiment, runs, machines)
    chosen = filter_of(request.query_params)
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
        origin=origins_of(store, [trial])[trial.id],
        machines=next(iter(machines.values()), []),
        costs=total_costs(rows),
        failure=last_failure(trial, experiment, runs, has_runner=has_runner),
        logs=read_lines(store, trial.id, chosen, FIRST_LINES, newest=True),
        line_values=line_values,
        log_filter=filter_values(chosen),
        levels=LOG_LEVELS,
        ranks=min((rows[-1].slots if rows else None) or 1, _MOST_RANKS),
        usage=utilization_charts(store, trial.id),
        kill=KILL_TRIAL if not trial.state.final and has_runner else None,
    )


def export_metrics(request: Request) -> Response:
    """Return all metrics of a trial as CSV, with a row per value."""
    trial = trial_of(request)
    rows = (
        (report.group, report.steps_completed, name, value)
        for report in store_of(request).metrics(trial.id)
        for name, value in flatten_mapping(report.metrics).items()
    )
    return csv_response(f"trial-{trial.id}-metrics.csv", ["group", "batches", "metric", "value"], rows)


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
]
