"""Experiments, trials and checkpoints as rows and facts for people, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from det_core.cli._output import document, elapsed, facts, flat, plain, scalars, sections, size, table, text
from det_core.interfaces.tracking import (
    Checkpoint,
    CheckpointState,
    Experiment,
    ScoredCheckpoint,
    SystemMetrics,
    TrackingStore,
    Trial,
    TrialResult,
)
from det_core.tracking.control import lacks_runner

CHECKPOINT_STATES = tuple(state for state in CheckpointState if state is not CheckpointState.DELETED)
"""Of those that are shown."""
_LONG = ("config", "original_config")


def experiment_row(experiment: Experiment) -> dict[str, Any]:
    """The experiment without its config, for lists."""
    return {field.name: getattr(experiment, field.name) for field in fields(experiment) if field.name not in _LONG}


def experiment_table(experiments: Sequence[Experiment], runners: Mapping[int, str | None]) -> str:
    """Return a table of experiments, followed by the commands that continue those whose runner is gone.

    Args:
        runners: holder of the lease, by experiment id.
    """
    orphaned = [one.id for one in experiments if lacks_runner(one, runners.get(one.id))]
    hints = (
        f"Experiment {identity} has no runner; to continue it: det experiment resume {identity}"
        for identity in orphaned
    )
    lines = table(
        ("id", "name", "state", "progress", "started", "took", "owner"),
        (
            (
                one.id,
                one.name,
                f"{one.state.value} (no runner)" if one.id in orphaned else one.state,
                f"{one.progress:.0%}",
                one.start_time,
                elapsed(one.start_time, one.end_time) if one.end_time else None,
                one.owner,
            )
            for one in experiments
        ),
    )
    return sections(lines, "\n".join(hints))


def trial_table(results: Sequence[TrialResult], metric: str) -> str:
    """One line per trial, with the hyperparameters that tell it from the others.

    Args:
        metric: what they are searched by.
    """
    names = varying(result.trial for result in results)
    return table(
        ("trial", "state", "batches", f"best {metric}".rstrip(), "at batch", "latest", "hyperparameters"),
        (
            (
                result.trial.id,
                result.trial.state,
                result.trial.steps_completed,
                result.best.value if result.best else None,
                result.best.steps_completed if result.best else None,
                result.latest.value if result.latest else None,
                hyperparameters(result.trial, names),
            )
            for result in results
        ),
    )


def varying(trials: Iterable[Trial]) -> list[str]:
    """The hyperparameters, as ``optimizer.lr``, that tell trials from each other; all of them if none does."""
    each = [flat(trial.hparams) for trial in trials]
    names = list(dict.fromkeys(name for values in each for name in values))
    return [name for name in names if len({repr(values.get(name)) for values in each}) > 1] or names


def hyperparameters(trial: Trial, names: Iterable[str], limit: int | None = None) -> str:
    """``lr=0.1 hidden=64``: those of these names that fit in a line."""
    values = flat(trial.hparams)
    return scalars({name: values[name] for name in names if name in values}, limit)


def checkpoint_table(checkpoints: Iterable[Checkpoint]) -> str:
    """One line per checkpoint."""
    return table(_CHECKPOINT_COLUMNS, map(_checkpoint_cells, checkpoints))


def scored_table(scored: Iterable[ScoredCheckpoint], metric: str) -> str:
    """One line per checkpoint, with the value of the searcher's metric."""
    rows = ((*_checkpoint_cells(one.checkpoint), one.value) for one in scored)
    return table((*_CHECKPOINT_COLUMNS, metric or "metric"), rows)


_CHECKPOINT_COLUMNS = ("uuid", "trial", "batch", "state", "size", "time")


def _checkpoint_cells(one: Checkpoint) -> tuple[object, ...]:
    return one.uuid, one.trial_id, one.steps_completed, one.state, size(sum(one.resources.values())), one.time


def system_table(samples: Iterable[SystemMetrics]) -> str:
    """One line per sample; empty without any."""
    rows = [(sample.time, sample.group, json.dumps(plain(sample.metrics))) for sample in samples]
    return table(("time", "group", "system metrics"), rows) if rows else ""


def experiment_facts(experiment: Experiment, runner: str | None) -> str:
    """What there is to know in one screen.

    Args:
        runner: who holds the experiment's lease.
    """
    stopped = runner is None and not (experiment.state.final or experiment.unmanaged)
    return facts(
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
            "recorded by": "a script off the cluster" if experiment.unmanaged else None,
            "started": experiment.start_time,
            "ended": experiment.end_time,
        }
    )


def trial_facts(trial: Trial) -> str:
    """What there is to know in one screen."""
    return facts(
        {
            "trial": trial.id,
            "experiment": trial.experiment_id,
            "state": trial.state,
            "status": trial.runner_state,
            "batches": trial.steps_completed,
            "runs": trial.run_id,
            "failed runs": trial.restarts,
            "seed": trial.seed,
            **_nested("hyperparameters", trial.hparams),
            **_nested("metadata", trial.metadata),
            "external id": trial.external_id,
            "started": trial.start_time,
            "ended": trial.end_time,
        }
    )


def checkpoint_facts(checkpoint: Checkpoint, path: str | None) -> str:
    """What there is to know in one screen, then the files."""
    head = facts(
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
    files = table(("file", "size"), ((name, size(count)) for name, count in sorted(checkpoint.resources.items())))
    return f"{head}\n\n{files}" if checkpoint.resources else head


def all_checkpoints(store: TrackingStore, **whose: int | None) -> list[Checkpoint]:
    """Those being written, and what is left of others, too; not the deleted ones."""
    return store.checkpoints(states=CHECKPOINT_STATES, **whose)


def _nested(name: str, values: Mapping[str, Any]) -> dict[str, object]:
    return {f"{name}.{key}": text(value) for key, value in values.items()}


def result_row(result: TrialResult) -> dict[str, Any]:
    """The trial as one JSON object, with what it has reached."""
    return document(result.trial, best=result.best, latest=result.latest)


def scored_row(scored: ScoredCheckpoint) -> dict[str, Any]:
    """The checkpoint as one JSON object, with the value of the searcher's metric."""
    return document(scored.checkpoint, searcher_metric=scored.value)
