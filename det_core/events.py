"""Events that event hooks and observers receive, one frozen dataclass per event.

The attribute ``name`` of each event is also the name of the method of `interfaces.observer.Observer` that receives it.
With the prefix ``det_``, it is the name of the hook. Configs contain ``********`` instead of secrets. Receivers of the
same event share its mappings, and must not change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from det_core.interfaces.records import LogLine, State


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class of all events."""

    name: ClassVar[str]
    """Name of the observer's method, and of the hook without ``det_``."""


@dataclass(frozen=True, kw_only=True)
class ExperimentEvent(Event):
    """Base class of the events of an experiment."""

    experiment_id: int
    """Id of the experiment."""
    config: Mapping[str, Any] = field(repr=False)
    """Complete experiment config, defaults included, without secrets."""


@dataclass(frozen=True, kw_only=True)
class TrialEvent(ExperimentEvent):
    """Base class of the events of a trial."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Number of the run within the trial, from 1, or 0 before the first run. A restarted trial has a new run."""
    hparams: Mapping[str, Any] = field(repr=False)
    """Hyperparameter names mapped to values, nested as in the config."""


@dataclass(frozen=True, kw_only=True)
class ExperimentStarted(ExperimentEvent):
    """The runner has taken the experiment and is about to start its trials."""

    name = "experiment_started"
    resumed: bool
    """Whether the experiment was started before."""


@dataclass(frozen=True, kw_only=True)
class ExperimentFinished(ExperimentEvent):
    """The runner has recorded the experiment's state and is about to exit."""

    name = "experiment_finished"
    state: State
    """COMPLETED, CANCELED or ERROR, or PAUSED for an experiment that is to be resumed."""
    error: str | None = None
    """Reason for the state ERROR or PAUSED, in one line, if there is one."""
    best_trial_id: int | None = None
    """Trial with the best value of the searcher's metric, or None if no validation has a finite one."""
    best: float | None = None
    """The best value of the searcher's metric, or None as above."""


@dataclass(frozen=True, kw_only=True)
class TrialStarted(TrialEvent):
    """A run of the trial is about to be launched, or goes on with another runner. A restart is a new run."""

    name = "trial_started"


@dataclass(frozen=True, kw_only=True)
class TrialFinished(TrialEvent):
    """The trial has reached a final state. A paused trial has not."""

    name = "trial_finished"
    state: State
    """COMPLETED, CANCELED or ERROR."""
    error: str | None = None
    """Reason for the state ERROR, in one line."""
    steps_completed: int = 0
    """Number of batches trained."""
    best: float | None = None
    """The trial's best value of the searcher's metric, or None if no validation has a finite one."""


@dataclass(frozen=True, kw_only=True)
class WorkerStarted(TrialEvent):
    """The chief worker of a run has entered the core context."""

    name = "worker_started"
    steps_completed: int
    """Number of batches trained at the checkpoint that the run starts from, or 0 without a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class WorkerFinished(TrialEvent):
    """The chief worker of a run leaves the core context, after everything that it reported was recorded.

    A worker that is killed sends no such event.
    """

    name = "worker_finished"
    error: str | None
    """Error that ended the training, as ``Class: message``, or None."""
    preempted: bool
    """Whether the worker stopped on request, before its work was done."""


@dataclass(frozen=True, kw_only=True)
class LogsRecorded(TrialEvent):
    """Lines that the processes of a run printed are in the tracking store."""

    name = "logs_recorded"
    lines: Sequence[LogLine] = field(repr=False)
    """The lines, in the order in which they were received."""


@dataclass(frozen=True, kw_only=True)
class MetricsReported(TrialEvent):
    """Reported metrics are in the tracking store."""

    name = "metrics_reported"
    group: str
    """``training``, ``validation`` or any other name that the trial reports under."""
    steps_completed: int
    """Number of batches trained at the time of the report."""
    metrics: Mapping[str, Any]
    """Metric names mapped to JSON-compatible values, which may be NaN or infinite."""
    batch_metrics: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)
    """Metrics of each batch since the previous report, oldest first, or None if they were not reported."""
    time: datetime
    """Time of the report (timezone-aware)."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved(TrialEvent):
    """A checkpoint is complete, both in storage and in the tracking store."""

    name = "checkpoint_saved"
    storage_id: str
    """Id of the checkpoint, also in its storage."""
    steps_completed: int | None
    """Number of batches trained, or None if the trial did not report it."""
    resources: Mapping[str, int]
    """Stored paths mapped to sizes in bytes. Directories end in ``/`` and have size 0."""
    metadata: Mapping[str, Any] = field(repr=False)
    """Metadata that the checkpoint was saved with."""
    location: str
    """URI of the checkpoint, such as ``file:///checkpoints/ID`` or ``s3://bucket/prefix/ID``. Empty if it has none."""


@dataclass(frozen=True, kw_only=True)
class CheckpointDeleted(Event):
    """A checkpoint was deleted from storage."""

    name = "checkpoint_deleted"
    storage_id: str
    """Id of the checkpoint, also in its storage."""
    experiment_id: int | None = None
    """Experiment that saved it, or None if it is not in the tracking store."""
    trial_id: int | None = None
    """Trial that saved it, or None if it is not in the tracking store."""


@dataclass(frozen=True, kw_only=True)
class ArtifactsStored(TrialEvent):
    """New or changed files of the TensorBoard directory, such as event files, plots and profiles, are in storage.

    Files of checkpoints are in `CheckpointSaved` instead.
    """

    name = "artifacts_stored"
    storage_id: str
    """Id of the files in checkpoint storage, which all trials of a tracking store share."""
    resources: Mapping[str, int]
    """Stored paths mapped to sizes in bytes."""
    location: str
    """URI of the directory that the paths are relative to, as in `CheckpointSaved`."""


@dataclass(frozen=True, kw_only=True)
class PreemptionRequested(TrialEvent):
    """The trial was asked to save a checkpoint and stop. Sent once per run."""

    name = "preemption_requested"
    reason: str
    """Source of the request: ``signal``, ``runner``, ``record`` or ``runner lost``."""


@dataclass(frozen=True, kw_only=True)
class ModelVersionRegistered(TrialEvent):
    """A checkpoint was registered as a version of a model. The trial and the run are those that saved it."""

    name = "model_version_registered"
    model: str
    """Name of the model."""
    version: int
    """Number of the version, from 1."""
    storage_id: str
    """Id of the checkpoint, also in its storage."""
    location: str
    """URI of the checkpoint, as in `CheckpointSaved`."""


STARTS_AND_ENDS: tuple[type[Event], ...] = (
    ExperimentStarted,
    ExperimentFinished,
    TrialStarted,
    TrialFinished,
    WorkerStarted,
    WorkerFinished,
)
"""Starts and ends, without which other events cannot be understood."""

EVENTS: tuple[type[Event], ...] = (
    *STARTS_AND_ENDS,
    LogsRecorded,
    MetricsReported,
    CheckpointSaved,
    CheckpointDeleted,
    ArtifactsStored,
    PreemptionRequested,
    ModelVersionRegistered,
)
"""All events."""
