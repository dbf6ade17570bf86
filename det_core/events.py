"""What event hooks receive: one frozen object per event. Times are UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ExperimentStarted:
    experiment_id: int
    config: Mapping[str, Any]
    resumed: bool


@dataclass(frozen=True, kw_only=True)
class ExperimentFinished:
    experiment_id: int
    state: str
    """The wire's name of the final state, such as ``STATE_COMPLETED``."""


@dataclass(frozen=True, kw_only=True)
class TrialStarted:
    experiment_id: int
    trial_id: int
    run_id: int
    hparams: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialFinished:
    experiment_id: int
    trial_id: int
    state: str


@dataclass(frozen=True, kw_only=True)
class MetricsReported:
    trial_id: int
    run_id: int
    group: str
    steps_completed: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved:
    trial_id: int
    storage_id: str
    steps_completed: int | None
    resources: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CheckpointDeleted:
    storage_id: str


@dataclass(frozen=True, kw_only=True)
class PreemptionRequested:
    trial_id: int
    reason: str
    """``signal``, ``runner``, or ``runner lost``."""
