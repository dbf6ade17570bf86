"""Formats of experiments, trials and checkpoints, as tables and facts for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from det_core.interfaces.records import (
    SHOWN_CHECKPOINT_STATES,
    CheckpointRecord,
    CodeVersion,
    ExperimentRecord,
    ExperimentSummary,
    Machine,
    ScoredCheckpoint,
    SystemMetrics,
    TrialRecord,
    TrialResult,
    current_placement,
    is_stopped_early,
    searcher_metric,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.json_values import name_non_finite
from det_core.text import (
    code_facts,
    flatten_mapping,
    format_facts,
    format_scalars,
    format_size,
    format_slot_hours,
    format_table,
    format_uncounted_runs,
    format_value,
    join_sections,
    machine_facts,
    record_to_json,
    to_json_compatible,
    varying_names,
)
from det_core.tracking.control import lacks_runner

_LONG = ("config", "original_config")


def experiment_row(experiment: ExperimentRecord) -> dict[str, Any]:
    """Return an experiment without its config, as a JSON object for lists."""
    return {field.name: getattr(experiment, field.name) for field in fields(experiment) if field.name not in _LONG}


def experiment_table(
    experiments: Sequence[ExperimentRecord], runners: Mapping[int, str | None], seconds: Mapping[int, float]
) -> str:
    """Return a table of experiments, followed by the commands that continue those whose runner is gone.

    Args:
        experiments: the experiments, in the order of the rows.
        runners: holder of the lease, by experiment id.
        seconds: seconds that the experiments have run, by experiment id.
    """
    orphaned = [one.id for one in experiments if lacks_runner(one, runners.get(one.id))]
    hints = (
        f"Experiment {identity} has no runner; to continue it: det experiment resume {identity}"
        for identity in orphaned
    )
    lines = format_table(
        ("id", "name", "state", "progress", "started", "took", "owner"),
        (
            (
                one.id,
                one.name,
                f"{one.state.value} (no runner)" if one.id in orphaned else one.state,
                f"{one.progress:.0%}",
                one.start_time,
                timedelta(seconds=seconds[one.id]) if one.end_time else None,
                one.owner,
            )
            for one in experiments
        ),
    )
    return join_sections(lines, "\n".join(hints))


def trial_table(
    results: Sequence[TrialResult], config: Mapping[str, Any], diverged: Mapping[int, tuple[int, float]]
) -> str:
    """Return a table of trials, with the hyperparameters that differ between them.

    Args:
        results: the trials.
        config: config of their experiment.
        diverged: ids of the trials for which it is no finite number any more, as in `TrackingStore.divergences`.
    """
    metric, _ = searcher_metric(config)
    names = varying_hyperparameters(results)
    placements = [current_placement(result.trial) for result in results]
    headers = ["trial", "state", "batches", f"best {metric}".rstrip(), "at batch", "latest", "hyperparameters"]
    rows: list[list[object]] = [
        [
            result.trial.id,
            trial_state(result.trial, config),
            result.trial.steps_completed,
            result.best.value if result.best else None,
            result.best.steps_completed if result.best else None,
            _latest(result, diverged.get(result.trial.id)),
            format_hyperparameters(result.trial, names),
        ]
        for result in results
    ]
    if any(placements):  # not for trials that run on this machine
        headers.insert(-1, "placement")
        for row, placement in zip(rows, placements, strict=True):
            row.insert(-1, placement)
    return format_table(headers, rows)


def _latest(result: TrialResult, diverged: tuple[int, float] | None) -> object:
    if diverged:
        return f"{name_non_finite(diverged[1])} since {diverged[0]}"
    return result.latest.value if result.latest else None


def trial_state(trial: TrialRecord, config: Mapping[str, Any]) -> str:
    """Return the state of a trial, and whether its search has stopped it early.

    Args:
        trial: the trial.
        config: config of its experiment.
    """
    return f"{trial.state.value} (stopped early)" if is_stopped_early(trial, config) else trial.state.value


def varying_hyperparameters(results: Iterable[TrialResult]) -> list[str]:
    """Return the names, such as ``optimizer.lr``, of the hyperparameters that differ, or all names if none differs."""
    return varying_names([flatten_mapping(result.trial.hparams) for result in results])


def format_hyperparameters(trial: TrialRecord, names: Iterable[str], limit: int | None = None) -> str:
    """Format hyperparameters in a line like ``lr=0.1 hidden=64``.

    Args:
        trial: the trial.
        names: names of the hyperparameters, as from `varying_hyperparameters`.
        limit: maximum number of hyperparameters.
    """
    values = flatten_mapping(trial.hparams)
    return format_scalars({name: values[name] for name in names if name in values}, limit)


def checkpoint_table(checkpoints: Iterable[CheckpointRecord]) -> str:
    """Return a table of checkpoints."""
    return format_table(_CHECKPOINT_COLUMNS, map(_checkpoint_cells, checkpoints))


def scored_table(scored: Iterable[ScoredCheckpoint], metric: str) -> str:
    """Return a table of checkpoints with the value of the searcher's metric at each."""
    rows = ((*_checkpoint_cells(one.checkpoint), one.value) for one in scored)
    return format_table((*_CHECKPOINT_COLUMNS, metric or "metric"), rows)


_CHECKPOINT_COLUMNS = ("uuid", "trial", "batch", "state", "size", "time")


def _checkpoint_cells(one: CheckpointRecord) -> tuple[object, ...]:
    return one.uuid, one.trial_id, one.steps_completed, one.state, format_size(sum(one.resources.values())), one.time


def system_table(samples: Iterable[SystemMetrics]) -> str:
    """Return a table of system metrics with a line per sample, or "" without samples."""
    rows = [(sample.time, sample.group, json.dumps(to_json_compatible(sample.metrics))) for sample in samples]
    return format_table(("time", "group", "system metrics"), rows) if rows else ""


def experiment_facts(experiment: ExperimentRecord, summary: ExperimentSummary, runner: str | None) -> str:
    """Describe an experiment in lines of names and values.

    Args:
        experiment: the experiment.
        summary: its summary.
        runner: holder of the experiment's lease, or None if it has no runner.
    """
    stopped = runner is None and not experiment.state.final
    cost = f"{format_slot_hours(summary.slot_hours)} slot-hours", format_uncounted_runs(summary.uncounted_runs)
    return format_facts(
        {
            "experiment": experiment.id,
            "name": experiment.name,
            "description": experiment.description,
            "notes": experiment.notes,
            "state": experiment.state,
            "runner": f"none; to continue: det experiment resume {experiment.id}" if stopped else runner,
            "error": experiment.error,
            "progress": f"{experiment.progress:.0%}",
            "owner": experiment.owner,
            "labels": ", ".join(experiment.labels),
            "external id": experiment.external_id,
            "archived": "yes" if experiment.archived else None,
            "recorded by": "a script without a runner" if experiment.unmanaged else None,
            "started": experiment.start_time,
            "ended": experiment.end_time,
            "cost": ", ".join(filter(None, cost)),
        }
    )


def trial_facts(trial: TrialRecord, config: Mapping[str, Any]) -> str:
    """Describe a trial in lines of names and values.

    Args:
        trial: the trial.
        config: config of its experiment.
    """
    return format_facts(
        {
            "trial": trial.id,
            "experiment": trial.experiment_id,
            "state": trial_state(trial, config),
            "placement": current_placement(trial),
            "status": trial.runner_state,
            "batches": trial.steps_completed,
            "runs": trial.run_id,
            "failed runs": trial.restarts,
            "interruptions": trial.interruptions or None,
            "seed": trial.seed,
            **_nested("hyperparameters", trial.hparams),
            **_nested("metadata", trial.metadata),
            "external id": trial.external_id,
            "started": trial.start_time,
            "ended": trial.end_time,
        }
    )


def origin_facts(version: CodeVersion | None, machine: Machine | None) -> str:
    """Describe the commit of code and the machine that ran it in lines of names and values.

    Args:
        version: the commit, or None if it is unknown.
        machine: the machine of the chief in a trial's newest run, or None for none.
    """
    return format_facts(
        {
            **(code_facts(version) if version else {}),
            **(machine_facts(machine) if machine else {}),
            "packages": len(machine.packages) if machine and machine.packages else None,
        }
    )


def checkpoint_facts(checkpoint: CheckpointRecord, path: str | None) -> str:
    """Describe a checkpoint in lines of names and values, followed by a table of its files.

    Args:
        checkpoint: the checkpoint.
        path: place of its files, as from `det_core.cli.render.checkpoint_place.locate_checkpoint`.
    """
    head = format_facts(
        {
            "checkpoint": checkpoint.uuid,
            "trial": checkpoint.trial_id,
            "run": checkpoint.run_id,
            "state": checkpoint.state,
            "error": checkpoint.error,
            "batch": checkpoint.steps_completed,
            "time": checkpoint.time,
            "in": path,
            **_nested("metadata", checkpoint.metadata),
        }
    )
    files = format_table(
        ("file", "size"), ((name, format_size(count)) for name, count in sorted(checkpoint.resources.items()))
    )
    return f"{head}\n\n{files}" if checkpoint.resources else head


def all_checkpoints(store: TrackingStore, **whose: int | None) -> list[CheckpointRecord]:
    """Return all checkpoints except deleted ones, including those that are incomplete or partially deleted.

    Args:
        store: the tracking store.
        whose: ``experiment_id`` or ``trial_id`` of the checkpoints.
    """
    return store.checkpoints(states=SHOWN_CHECKPOINT_STATES, **whose)


def _nested(name: str, values: Mapping[str, Any]) -> dict[str, object]:
    return {f"{name}.{key}": format_value(value) for key, value in values.items()}


def result_row(result: TrialResult, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial as a JSON object with its best and latest validations.

    Args:
        result: the trial.
        config: config of its experiment.
    """
    stopped = is_stopped_early(result.trial, config)
    return record_to_json(result.trial, best=result.best, latest=result.latest, stopped_early=stopped)


def scored_row(scored: ScoredCheckpoint) -> dict[str, Any]:
    """Return a checkpoint as a JSON object with the value of the searcher's metric."""
    return record_to_json(scored.checkpoint, searcher_metric=scored.value)
