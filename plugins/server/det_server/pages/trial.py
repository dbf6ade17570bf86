"""Page of one trial, with its metrics, logs, checkpoints, utilization and runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from det_core.cli.render.formats import flatten_mapping
from det_core.cli.render.records import CHECKPOINT_STATES, current_placement
from det_core.interfaces.records import CheckpointState, LogLine, Run, SystemMetrics, TrialRecord, searcher_metric
from det_core.interfaces.tracking import TrackingStore
from det_server._ansi_text import colored_segments
from det_server._csv_export import csv_response
from det_server._rendering import clean_text, format_elapsed, query_string, render_page
from det_server.pages._actions import KILL_TRIAL
from det_server.pages._hyperparameters import hyperparameter_values
from det_server.pages._series import sorted_groups
from det_server.pages._store_values import store_of, trial_of

_FIRST_LINES = 500
"""Number of log lines on the page when it opens."""
_MOST_LINES = 2000
_MOST_CHECKPOINTS = 200
_MOST_POINTS = 600
_SAMPLES_WITH_NAMES = 50
_USAGE = {"cpu": "CPU", "gpu": "GPU", "memory": "Memory", "network": "Network", "disk": "Disk"}
"""Groups of system metrics with their headings."""
_USAGE_TITLES = {
    "cpu_util_simple": ("utilization, %", 1.0),
    "gpu_util": ("utilization, %", 1.0),
    "gpu_free_memory": ("free memory, GB", 1e-9),
    "memory_free": ("free memory, GB", 1e-9),
    "net_throughput_sent": ("sent, MB/s", 1e-6),
    "net_throughput_recv": ("received, MB/s", 1e-6),
    "disk_util": ("space used, %", 1.0),
    "disk_iops": ("operations per second", 1.0),
    "disk_throughput_read": ("read, MB/s", 1e-6),
    "disk_throughput_write": ("written, MB/s", 1e-6),
}
"""Names of system metrics with the titles of their charts, and the factors to the units there."""


def show_trial(request: Request) -> Response:
    """Show everything about a trial."""
    trial, store = trial_of(request), store_of(request)
    experiment = store.experiment(trial.experiment_id)
    metric, smaller_is_better = searcher_metric(experiment.config)
    best = store.best_validation(experiment.id, metric, smaller_is_better=smaller_is_better, trial_id=trial.id)
    scored = store.scored_checkpoints(
        experiment.id, trial_id=trial.id, states=CHECKPOINT_STATES, limit=_MOST_CHECKPOINTS
    )
    lines = store.logs(trial.id, limit=_FIRST_LINES, newest=True)
    return render_page(
        request,
        "trial.html",
        trial=trial,
        experiment=experiment,
        metric=metric,
        best=best,
        placement=current_placement(trial),
        hyperparameters=hyperparameter_values(trial),
        charts=_charts(store, trial),
        checkpoints=scored,
        registered=store.registered_checkpoints(experiment.id),
        completed=CheckpointState.COMPLETED,
        runs=[(run, _end_of_run(run, trial), _took(run)) for run in reversed(store.runs(trial.id))],
        lines=lines,
        last_line=lines[-1].id if lines else 0,
        more_lines=len(lines) == _FIRST_LINES,
        usage=_usage_groups(store, trial.id),
        kill=KILL_TRIAL if not trial.state.final and store.lease_holder(experiment.id) else None,
    )


def send_logs(request: Request) -> Response:
    """Return log lines of a trial as JSON, as pieces of plain text with names of style classes."""
    trial = trial_of(request)
    after = _number(request, "after", 0, 2**62)
    limit = _number(request, "limit", _MOST_LINES, _MOST_LINES)
    lines = store_of(request).logs(trial.id, after=after, limit=limit)
    shown = [
        {"id": one.id, "rank": line_source(one), "kind": one.stdtype, "text": colored_segments(one.log)}
        for one in lines
    ]
    return JSONResponse({"lines": shown, "more": len(lines) == limit})


def send_usage(request: Request) -> Response:
    """Return the utilization of one kind of resource during a trial, as curves over time."""
    trial, group = trial_of(request), request.query_params.get("group", "")
    name = request.query_params.get("name", "")
    samples = store_of(request).system_metrics(trial.id, group=group) if group in _USAGE else []
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    factor = _USAGE_TITLES.get(name, ("", 1.0))[1]
    for place, series, time, value in _usage_values(samples):
        if series == name:
            curves[place].append((time, value * factor))
    drawn = [
        {"id": number, "label": place, "x": [x for x, _ in points], "y": [y for _, y in points]}
        for number, (place, every) in enumerate(sorted(curves.items()))
        for points in [every[:: max(len(every) // _MOST_POINTS, 1)]]
    ]
    return JSONResponse({"series": drawn})


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


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else default


def _charts(store: TrackingStore, trial: TrialRecord) -> dict[str, list[tuple[str, str]]]:
    """Return the metrics of each group with the URLs of their curves."""
    groups = sorted_groups(store.metric_names([trial.id]))
    return {
        group: [
            (name, f"/data/curves{query_string({'trials': trial.id, 'group': group, 'metric': name})}")
            for name in names
        ]
        for group, names in groups.items()
    }


def _usage_groups(store: TrackingStore, trial_id: int) -> dict[str, list[tuple[str, str]]]:
    """Return the titles of the charts of each kind of resource, from its first samples, with their URLs."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group, label in _USAGE.items():
        samples = store.system_metrics(trial_id, group=group)[:_SAMPLES_WITH_NAMES]
        names = dict.fromkeys(series for _, series, _, _ in _usage_values(samples))
        charts = [(_USAGE_TITLES.get(name, (name, 1.0))[0], _usage_url(trial_id, group, name)) for name in names]
        if charts:
            found[label] = charts
    return found


def _usage_url(trial_id: int, group: str, name: str) -> str:
    return f"/data/trials/{trial_id}/usage{query_string({'group': group, 'name': name})}"


def _usage_values(samples: Sequence[SystemMetrics]) -> Iterator[tuple[str, str, float, float]]:
    """Yield the place, such as host and GPU, the name, the time and the value of each number in the samples."""
    for sample in samples:
        for path, value in flatten_mapping({host: _nested(rest) for host, rest in sample.metrics.items()}).items():
            place, _, name = path.rpartition(".")
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield clean_text(place), name, sample.time.timestamp(), float(value)


def _nested(values: Any) -> Any:
    return values if isinstance(values, Mapping) else {"value": values}


def _end_of_run(run: Run, trial: TrialRecord) -> str:
    """Return why a run ended, in words."""
    if run.run_id == trial.run_id and run.end_time is None and not trial.state.final:
        return "has not ended"
    if run.early_exit:
        return run.early_exit.removeprefix("EXITED_REASON_").replace("_", " ").lower()
    if run.end_reason:
        return run.end_reason
    return "stopped before its work was done, to continue later" if run.preemption_acknowledged else "done"


def _took(run: Run) -> str:
    return format_elapsed(run.start_time, run.end_time) if run.start_time and run.end_time else "–"  # noqa: RUF001


ROUTES = [
    Route("/trials/{id:int}", show_trial),
    Route("/trials/{id:int}/metrics.csv", export_metrics),
    Route("/data/logs/{id:int}", send_logs),
    Route("/data/trials/{id:int}/usage", send_usage),
]
