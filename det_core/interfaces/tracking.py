"""The one record of experiments, trials, metrics, checkpoints and logs, in domain words.

Times are UTC and aware. States are the wire's names without ``STATE_`` (``COMPLETED``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

SECRET_REFERENCE = re.compile(r"det-secret:[0-9a-f]{32}")
"""What recorded configs hold in the place of a secret; `det_core.tracking.secret_files` has the secrets."""


class State(str, Enum):
    """States of experiments and trials; the wire adds the prefix ``STATE_``."""

    QUEUED = "QUEUED"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"

    @property
    def final(self) -> bool:
        """Whether nothing more happens unless a person resumes it."""
        return self in (State.COMPLETED, State.CANCELED, State.ERROR)


REQUESTS: Mapping[State, State] = {
    State.PAUSED: State.PAUSED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
}
"""What a person can ask of a running experiment, mildest first -> the state that it ends in."""


class CheckpointState(str, Enum):
    ACTIVE = "ACTIVE"
    """Being written; only the run that began it may complete it."""
    COMPLETED = "COMPLETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"
    """Some of its files were deleted; the others can still be restored, and no run starts from it."""
    DELETED = "DELETED"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    id: int
    state: State
    name: str
    description: str
    owner: str
    config: Mapping[str, Any]
    original_config: str
    labels: Sequence[str]
    progress: float
    """Share of the work that is done, 0 to 1."""
    error: str | None
    """Why the state is ERROR, in one line."""
    unmanaged: bool
    """Recorded by a script off the cluster: no runner starts or resumes it."""
    external_id: str | None
    archived: bool
    start_time: datetime
    end_time: datetime | None


@dataclass(frozen=True, kw_only=True)
class Trial:
    id: int
    experiment_id: int
    request_id: int
    """The id that the search method chose for it."""
    state: State
    hparams: Mapping[str, Any]
    seed: int
    run_id: int
    """Number of the newest run, from 1; 0 before the first."""
    restarts: int
    """Runs that failed and counted against max_restarts."""
    steps_completed: int
    """Batches trained, by the newest report or checkpoint of the surviving history."""
    runner_state: str
    """The short status that the trial's own code reported last."""
    metadata: Mapping[str, Any]
    """What the trial's own code noted about itself."""
    task_id: str
    external_id: str | None
    start_time: datetime
    end_time: datetime | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One start of a trial's processes. Every write of that start carries it."""

    trial_id: int
    run_id: int
    allocation_id: str
    preemption_acknowledged: bool = False
    early_exit: str | None = None
    """The wire's reason, such as ``EXITED_REASON_INVALID_HP``."""


@dataclass(frozen=True, kw_only=True)
class SearcherOperationRecord:
    """What the search method wants of a trial: train up to ``length``, then tell the searcher's metric."""

    length: int
    """Absolute, in the unit of the config."""
    completed: bool
    metric: float | None
    """Told with the completion; may be NaN or infinite. None before."""


@dataclass(frozen=True, kw_only=True)
class MetricsReport:
    """What was reported for one (trial, group, step)."""

    trial_id: int
    run_id: int
    group: str
    """``training``, ``validation`` or any name without ``.``."""
    steps_completed: int
    metrics: Mapping[str, Any]
    batch_metrics: Sequence[Mapping[str, Any]] | None = None
    time: datetime | None = None
    """When it was reported; None = now."""


@dataclass(frozen=True, kw_only=True)
class SystemMetrics:
    """What a host was busy with at one time while it ran a trial."""

    trial_id: int
    run_id: int
    group: str
    """``cpu``, ``memory``, ``disk``, ``network`` or ``gpu``."""
    metrics: Mapping[str, Any]
    """Agent id to the numbers of that group."""
    time: datetime
    id: int = 0
    """Given by the store, rising."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    uuid: str
    trial_id: int
    run_id: int
    state: CheckpointState
    steps_completed: int | None
    storage: Mapping[str, Any]
    """The checkpoint_storage block it was written with; a `SECRET_REFERENCE` stands for each secret."""
    resources: Mapping[str, int]
    """Stored path -> size in bytes; directories end in ``/`` with size 0."""
    metadata: Mapping[str, Any]
    time: datetime
    """When it was begun, then when it was completed."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    trial_id: int
    run_id: int
    rank: int
    stdtype: str
    """``stdout``, ``stderr``, or ``det`` for lines of the runner itself."""
    log: str
    time: datetime
    id: int = 0
    """Given by the store, rising."""


class TrackingStore(ABC):
    """Where everything that happened is written, and the rules about it.

    All methods are safe from several threads and processes, and after a fork. Errors: `RecordNotFound` for an unknown
    id, `StaleRun` for a write of a replaced run or with the ``lease`` of a replaced runner, TypeError for what JSON
    cannot hold, `StoreBusy`, `StoreCorrupt`, `TrackingError`. A ``lease`` is a holder as in `acquire_lease`; without
    one, nothing is checked.
    """

    url: str
    """What `det_core.tracking.open_store` takes to open the same record in another process."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """32 hexadecimal digits that tell this record from all others."""

    # Experiments

    @abstractmethod
    def create_experiment(
        self,
        *,
        config: Mapping[str, Any],
        original_config: str = "",
        model_definition: bytes = b"",
        owner: str = "",
        unmanaged: bool = False,
        external_id: str | None = None,
    ) -> Experiment:
        """Record a new experiment; name, description and labels are taken from its config.

        Args:
            config: the complete, validated config, JSON-able, with a `SECRET_REFERENCE` for each secret.
            original_config: its text as the user wrote it, likewise without secrets.
            model_definition: the context directory as a gzipped tar file.
            external_id: an id of the caller's own; an existing one is returned as it is.
        """

    @abstractmethod
    def experiment(self, experiment_id: int) -> Experiment: ...

    @abstractmethod
    def experiments(self, *, limit: int | None = None, offset: int = 0) -> list[Experiment]:
        """Newest first."""

    @abstractmethod
    def model_definition(self, experiment_id: int) -> bytes:
        """The gzipped tar file given to `create_experiment`."""

    @abstractmethod
    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        """Record a state; final states set the end time, others clear it.

        Raises:
            StaleRun: ``lease`` is given but another runner has taken the experiment over.
        """

    @abstractmethod
    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None: ...

    # The lease: at most one runner owns an experiment.

    @abstractmethod
    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        """Take or renew the experiment for ``holder`` until ``seconds`` from now.

        Args:
            holder: ``"host:pid:start-time:random"`` of the runner (`det_core.runner`).

        Raises:
            ExperimentBusy: another holder's lease has not run out; it names the holder.
        """

    @abstractmethod
    def lease_holder(self, experiment_id: int) -> str | None:
        """Who holds a lease that has not run out."""

    @abstractmethod
    def release_lease(self, experiment_id: int, holder: str) -> None:
        """Give the lease back; nothing happens if ``holder`` no longer has it."""

    # Trials and runs

    @abstractmethod
    def create_trial(
        self,
        experiment_id: int,
        *,
        hparams: Mapping[str, Any],
        seed: int,
        request_id: int = 0,
        external_id: str | None = None,
        lease: str = "",
    ) -> Trial:
        """Record a new trial, QUEUED, with no run yet. An existing external id is returned as it is."""

    @abstractmethod
    def trial(self, trial_id: int) -> Trial: ...

    @abstractmethod
    def trials(self, experiment_id: int) -> list[Trial]:
        """In order of creation."""

    @abstractmethod
    def set_trial_state(self, trial_id: int, state: State, *, lease: str = "") -> None:
        """Record a state; final states set the end time, others clear it. Raises as for experiments."""

    @abstractmethod
    def count_restart(self, trial_id: int, *, lease: str = "") -> int:
        """Add one to the trial's restarts; the new number."""

    @abstractmethod
    def start_run(self, trial_id: int, *, allocation_id: str, lease: str = "") -> Run:
        """Begin a new run. All writes of earlier runs are refused from now on.

        Metrics of earlier runs beyond the latest completed checkpoint are archived, and
        ``steps_completed`` goes back to that checkpoint, since the new run starts from it.
        """

    @abstractmethod
    def run(self, trial_id: int, run_id: int) -> Run: ...

    @abstractmethod
    def acknowledge_preemption(self, trial_id: int, run_id: int) -> None:
        """The run leaves before its work is done and expects to be started again."""

    @abstractmethod
    def report_early_exit(self, trial_id: int, run_id: int, reason: str) -> None:
        """The run leaves for good, for the reason given (the wire's name)."""

    @abstractmethod
    def set_runner_state(self, trial_id: int, run_id: int, status: str) -> None: ...

    @abstractmethod
    def set_trial_metadata(self, trial_id: int, run_id: int, metadata: Mapping[str, Any]) -> None:
        """Replace the trial's metadata, which must be JSON-able."""

    @abstractmethod
    def add_trial_source(
        self,
        trial_id: int,
        run_id: int,
        checkpoint_uuid: str,
        *,
        model_id: int | None = None,
        model_version: int | None = None,
    ) -> None:
        """Note that the trial works with a checkpoint of some other trial, perhaps as a version of a model."""

    @abstractmethod
    def trials_using(self, checkpoint_uuid: str) -> list[int]:
        """The ids of the trials that were noted to work with the checkpoint, in order."""

    # The searcher's operation: at most one per trial.

    @abstractmethod
    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        """Ask the trial to train up to ``length`` (> 0). An operation of the same length stays as it is."""

    @abstractmethod
    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        """The operation set last, None before the first."""

    @abstractmethod
    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        """The run has trained up to ``length``, with this value of the searcher's metric.

        Raises:
            TrackingError: the operation has another length, or was completed before.
        """

    # Metrics

    @abstractmethod
    def report_metrics(self, reports: Sequence[MetricsReport]) -> None:
        """Write the reports in order, in one transaction: all of them or none.

        For one (trial, group, step) the keys are united; a key reported again must have the same
        value. The first report of a newer run at a step archives what older runs wrote in the same
        group at that step or later, and in other groups later than that step. NaN and infinities are
        kept; the strings "NaN", "Infinity" and "-Infinity" come back as these numbers.

        Raises:
            MetricsConflict: a key has another value, or batch metrics came twice; names the key.
            ValueError: the group is empty or contains ``.``; ``epoch`` or ``epochs`` is no number.
            StaleRun: a newer run of the trial exists.
        """

    @abstractmethod
    def metrics(
        self, trial_id: int, *, group: str | None = None, after: int = -1, archived: bool = False
    ) -> Iterator[MetricsReport]:
        """By step, then group; only steps greater than ``after``. ``archived=True``: those alone."""

    @abstractmethod
    def best_validation(
        self, experiment_id: int, metric: str, *, smaller_is_better: bool
    ) -> tuple[float, int, int] | None:
        """The best (value, trial id, step) of a finite numeric validation metric over the experiment."""

    @abstractmethod
    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        """Add the samples, in one transaction; ``id`` is ignored. Raises StaleRun as `report_metrics`."""

    @abstractmethod
    def system_metrics(self, trial_id: int, *, group: str | None = None, after: int = 0) -> list[SystemMetrics]:
        """Of all runs, in order; only ids greater than ``after``."""

    # Checkpoints

    @abstractmethod
    def begin_checkpoint(self, uuid: str, *, trial_id: int, run_id: int, storage: Mapping[str, Any]) -> None:
        """Record an ACTIVE checkpoint, before its first byte is written."""

    @abstractmethod
    def complete_checkpoint(
        self,
        uuid: str,
        *,
        run_id: int,
        steps_completed: int | None,
        resources: Mapping[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        """Turn it COMPLETED, after the last byte is stored."""

    @abstractmethod
    def delete_checkpoint(
        self, uuid: str, *, only: CheckpointState | None = None, remaining: Mapping[str, int] | None = None
    ) -> bool:
        """Turn it DELETED, with no resources; its files are gone.

        Args:
            only: leave it alone in any other state.
            remaining: the resources that are left, if some are; then it is PARTIALLY_DELETED.

        Returns:
            Whether it was turned.
        """

    @abstractmethod
    def checkpoint(self, uuid: str) -> Checkpoint: ...

    @abstractmethod
    def checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
    ) -> list[Checkpoint]:
        """Oldest first, by the time of the latest change. Of one trial, of one experiment, or all."""

    # Logs

    @abstractmethod
    def add_logs(self, lines: Sequence[LogLine]) -> None: ...

    @abstractmethod
    def logs(self, trial_id: int, *, after: int = 0, limit: int | None = None) -> list[LogLine]:
        """In order; only ids greater than ``after``."""

    @abstractmethod
    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""

    def __enter__(self) -> TrackingStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
