"""Events that event hooks receive, one frozen dataclass per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ExperimentStarted:
    """Event of `det_core.hookspecs.det_experiment_started`."""

    experiment_id: int
    """Id of the experiment."""
    config: Mapping[str, Any]
    """Complete experiment config, defaults included."""
    resumed: bool
    """Whether the experiment was started before."""


@dataclass(frozen=True, kw_only=True)
class ExperimentFinished:
    """Event of `det_core.hookspecs.det_experiment_finished`."""

    experiment_id: int
    """Id of the experiment."""
    state: str
    """Final state, such as ``COMPLETED``."""


@dataclass(frozen=True, kw_only=True)
class TrialStarted:
    """Event of `det_core.hookspecs.det_trial_started`."""

    experiment_id: int
    """Id of the trial's experiment."""
    trial_id: int
    """Id of the trial."""
    run_id: int
    """Number of the run within the trial, from 1."""
    hparams: Mapping[str, Any]
    """Hyperparameter names mapped to values, nested as in the config."""


@dataclass(frozen=True, kw_only=True)
class TrialFinished:
    """Event of `det_core.hookspecs.det_trial_finished`."""

    experiment_id: int
    """Id of the trial's experiment."""
    trial_id: int
    """Id of the trial."""
    state: str
    """Final state, such as ``COMPLETED``."""


@dataclass(frozen=True, kw_only=True)
class MetricsReported:
    """Event of `det_core.hookspecs.det_metrics_reported`."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Number of the run within the trial, from 1."""
    group: str
    """``training``, ``validation`` or any other name that the trial reports under."""
    steps_completed: int
    """Number of batches trained at the time of the report."""
    metrics: Mapping[str, Any]
    """Metric names mapped to values."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved:
    """Event of `det_core.hookspecs.det_checkpoint_saved`."""

    trial_id: int
    """Id of the trial."""
    storage_id: str
    """Id of the checkpoint, also in its storage."""
    steps_completed: int | None
    """Number of batches trained, or None if the trial did not report it."""
    resources: Mapping[str, int]
    """Stored paths mapped to sizes in bytes."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDeleted:
    """Event of `det_core.hookspecs.det_checkpoint_deleted`."""

    storage_id: str
    """Id of the checkpoint, also in its storage."""


@dataclass(frozen=True, kw_only=True)
class PreemptionRequested:
    """Event of `det_core.hookspecs.det_preemption_requested`."""

    trial_id: int
    """Id of the trial."""
    reason: str
    """Source of the request: ``signal``, ``runner``, or ``runner lost``."""
