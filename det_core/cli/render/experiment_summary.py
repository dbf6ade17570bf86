"""Outcome of an experiment and the closing lines that describe it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from det_core.cli.render.checkpoint_place import OTHER_MACHINE, CheckpointPlace, locate_checkpoint
from det_core.cli.render.records import format_hyperparameters, varying_hyperparameters
from det_core.core.non_finite_metrics import NonFiniteMetric, find_non_finite_metrics, find_usable_checkpoint
from det_core.interfaces.records import (
    CheckpointRecord,
    ExperimentRecord,
    State,
    TrialOrder,
    TrialResult,
    searcher_metric,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.metric_directions import missing_direction
from det_core.plugins import plugin_registry
from det_core.specs import FrameworkSpec
from det_core.text import flatten_mapping, format_count, format_table, format_value
from det_core.tracking.printable import printable_text

_TOP = 5

DOWNLOAD_DIRECTORY = Path("checkpoints")
"""Default directory for downloads. Each checkpoint gets a subdirectory with its uuid."""


@dataclass(frozen=True, kw_only=True)
class BestValidation:
    """Best validation so far."""

    metric: str
    value: float
    trial_id: int
    steps_completed: int


@dataclass(frozen=True, kw_only=True)
class ExperimentSummary:
    """Outcome of an experiment, as ``det run --json`` prints it."""

    id: int
    state: State
    error: str | None
    trials: int
    steps_completed: int
    """Number of batches trained, over all trials."""
    restarts: int
    interruptions: int
    """Number of runs that the engine ended, over all trials."""
    seconds: float
    """Seconds during which at least one trial ran."""
    best: BestValidation | None
    top: Sequence[TrialResult]
    """Best trials of a search, the best first. Empty if there was only one trial."""
    checkpoint: CheckpointRecord | None
    """Checkpoint with the best validation, or the newest one if none was validated."""
    checkpoint_value: float | None
    """Value of the searcher metric at ``checkpoint``."""
    path: str | None
    """Path of ``checkpoint``, as in `CheckpointPlace`."""
    machine: str | None = None
    """Machine that has the path, as in `CheckpointPlace`."""
    direction: str = ""
    """Line about a missing ``smaller_is_better``, or "" if none is needed."""
    non_finite: Sequence[NonFiniteMetric] = ()
    """Losses and searcher's metrics that are NaN or infinite. ``checkpoint`` is from before that."""
    stops_on_nan: bool = False
    """Whether the config has ``stop_on_nan``."""


def summarize_experiment(store: TrackingStore, experiment_id: int) -> ExperimentSummary:
    """Read the outcome of an experiment from the tracking store."""
    experiment = store.experiment(experiment_id)
    trials = store.trials(experiment_id)
    non_finite = find_non_finite_metrics(store, trials, searcher_metric(experiment.config)[0])
    value, checkpoint = find_usable_checkpoint(store, experiment_id, non_finite)
    place = locate_checkpoint(store, checkpoint) if checkpoint else None
    return ExperimentSummary(
        id=experiment_id,
        state=experiment.state,
        error=experiment.error,
        trials=len(trials),
        steps_completed=sum(trial.steps_completed for trial in trials),
        restarts=sum(trial.restarts for trial in trials),
        interruptions=sum(trial.interruptions for trial in trials),
        seconds=store.running_seconds([experiment_id])[experiment_id],
        best=best_validation(store, experiment),
        top=store.trial_results(experiment_id, order=TrialOrder.BEST, limit=_TOP) if len(trials) > 1 else (),
        checkpoint=checkpoint,
        checkpoint_value=value,
        path=place.path if place else None,
        machine=place.machine if place else None,
        direction=_direction(experiment),
        non_finite=non_finite,
        stops_on_nan=bool(experiment.config.get("stop_on_nan")),
    )


def _direction(experiment: ExperimentRecord) -> str:
    metric, smaller_is_better = searcher_metric(experiment.config)
    given = not smaller_is_better or "smaller_is_better" in experiment.original_config
    return "" if given else missing_direction(metric)


def best_validation(store: TrackingStore, experiment: ExperimentRecord) -> BestValidation | None:
    """Return the best validation by the searcher metric over all trials, or None before the first one."""
    metric, smaller_is_better = searcher_metric(experiment.config)
    best = store.best_validation(experiment.id, metric, smaller_is_better=smaller_is_better)
    return BestValidation(metric=metric, value=best[0], trial_id=best[1], steps_completed=best[2]) if best else None


def best_checkpoint(
    store: TrackingStore, experiment_id: int, trial_id: int | None
) -> tuple[float, CheckpointRecord] | None:
    """Return the completed checkpoint with the best searcher metric at its batch. The earliest wins a tie.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        trial_id: consider only checkpoints of this trial, or None for all.

    Returns:
        The value of the metric and the checkpoint, or None if no checkpoint was validated.
    """
    best = next(iter(store.scored_checkpoints(experiment_id, trial_id=trial_id, limit=1)), None)
    return None if best is None or best.value is None else (best.value, best.checkpoint)


def summary_lines(result: ExperimentSummary, det: str = "det") -> Iterator[str]:
    """Yield the closing lines with the result, its location and the commands for the next steps.

    Args:
        result: outcome of the experiment.
        det: beginning of the commands, as from `det_core.tracking.det_command`.
    """
    counts = [format_count(result.trials, "trial"), format_count(result.steps_completed, "batch", "batches")]
    if result.restarts:
        counts.append(format_count(result.restarts, "failed run"))
    if result.interruptions:
        counts.append(format_count(result.interruptions, "interruption"))
    counts.append(f"{result.seconds:.1f} s")
    yield f"Experiment {result.id} {_ENDINGS.get(result.state, 'has not ended')}: {', '.join(counts)}"
    if result.best:
        best = result.best
        value = f"{printable_text(best.metric)}={format_value(best.value)}"
        yield f"  best {value} at batch {best.steps_completed} of trial {best.trial_id}"
        yield from _top_lines(result.top, best.metric, det)
        if result.direction:
            yield f"  note: {result.direction}"
    yield from _non_finite_lines(result)
    if result.checkpoint:
        yield from _checkpoint_lines(result.checkpoint, result, det)
    if result.error:
        yield f"  error: {result.error}"
    if result.state is State.ERROR:
        yield f"  full output: {det} experiment logs {result.id}"
    if result.state is State.PAUSED or (
        result.state is not State.COMPLETED and (result.checkpoint or not result.error)
    ):
        where = " from the latest checkpoint" if result.checkpoint else ""
        yield f"  to continue{where}: {det} experiment resume {result.id}"


_ENDINGS = {
    State.COMPLETED: "completed",
    State.ERROR: "failed",
    State.PAUSED: "paused",
    State.CANCELED: "was canceled",
}


def _top_lines(top: Sequence[TrialResult], metric: str, det: str) -> Iterator[str]:
    if top:
        yield f"    with {format_hyperparameters(top[0].trial, flatten_mapping(top[0].trial.hparams))}"
        yield f"  the best trials (all: {det} experiment trials {top[0].trial.experiment_id} --sort-by best)"
        names = varying_hyperparameters(top)
        rows = (
            (one.trial.id, one.best.value, one.best.steps_completed, format_hyperparameters(one.trial, names))
            for one in top
            if one.best
        )
        yield indent(format_table(("trial", metric, "at batch", "hyperparameters"), rows), "    ")


def _non_finite_lines(result: ExperimentSummary) -> Iterator[str]:
    for one in result.non_finite[:_TOP]:
        yield f"  {printable_text(str(one))} of trial {one.trial_id}"
    if len(result.non_finite) > _TOP:
        yield f"  and {format_count(len(result.non_finite) - _TOP, 'more metric')} of other trials"
    if result.non_finite and not result.stops_on_nan:
        yield "    to end such a trial there: --config stop_on_nan=true"


def _checkpoint_lines(checkpoint: CheckpointRecord, result: ExperimentSummary, det: str) -> Iterator[str]:
    which = "latest" if result.checkpoint_value is None else "best"
    yield f"  {which} checkpoint {checkpoint.uuid} (batch {format_value(checkpoint.steps_completed)})"
    yield f"    in {CheckpointPlace(str(result.path), result.machine)}"
    where = ", there" if result.machine == OTHER_MACHINE else ""
    yield f"    to get it{where}: {det} checkpoint download {checkpoint.uuid}"
    here = result.path is not None and Path(result.path).is_dir()
    path = result.path if here else DOWNLOAD_DIRECTORY / checkpoint.uuid
    lines = _how_to_load(checkpoint.metadata.get("trial_framework"), str(path))
    if lines:
        yield "  to load it in Python:" if here else "  to load it in Python, once it is downloaded:"
        yield indent(lines, "    ")


def _how_to_load(framework: str | None, path: str) -> str:
    for spec in plugin_registry().specs("framework"):
        if isinstance(spec, FrameworkSpec) and spec.name == framework:
            return spec.loading_lines(path)
    return ""
