"""Interface of the tracking store, which records experiments, trials, metrics, checkpoints and logs.

Times are UTC and timezone-aware. States are the names of the wire format without ``STATE_`` (``COMPLETED``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from det_core.errors import UnwritableText
from det_core.interfaces.model_registry import ModelRegistry

MAX_STEPS = 2**63 - 1
"""Maximum number of batches, or of the searcher's units, that can be recorded."""


def require_writable(text: str) -> None:
    """Check that every database can store the text.

    Some databases refuse a NUL or half of a surrogate pair, and others truncate or lose it.

    Raises:
        UnwritableText: the text contains one of them.
    """
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise UnwritableText(
            f"{text!r:.100} has a NUL or half of a surrogate pair, which no database can store; remove it"
        )


class State(str, Enum):
    """States of experiments and trials. The wire format adds the prefix ``STATE_``."""

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
        """Whether the state lasts until a user resumes the experiment or trial."""
        return self in (State.COMPLETED, State.CANCELED, State.ERROR)


REQUESTS: Mapping[State, State] = {
    State.PAUSED: State.PAUSED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
}
"""Requests that a user can make of a running experiment, mildest first, mapped to the state that it ends in."""

ENDINGS = (State.STOPPING_CANCELED, State.STOPPING_KILLED)
"""Requests to end a single trial. Only a final state or another such request replaces them."""

TRAINING_STATE = "training"
"""`Trial.runner_state` once a trial class has trained a batch in its current run."""


def stronger_request(one: State | None, other: State | None) -> State | None:
    """Return the stronger of two requests. States that are not requests are the weakest."""
    severity = list(REQUESTS)
    return max((one, other), key=lambda state: severity.index(state) if state in severity else -1)


class CheckpointState(str, Enum):
    """States of a checkpoint."""

    ACTIVE = "ACTIVE"
    """Being written. Only the run that began the checkpoint may complete it."""
    COMPLETED = "COMPLETED"
    """Stored completely. Runs may start from it."""
    PARTIALLY_DELETED = "PARTIALLY_DELETED"
    """Some files were deleted. The others can still be restored, but no run starts from the checkpoint."""
    DELETED = "DELETED"
    """All files were deleted. The row is kept for history."""
    ERROR = "ERROR"
    """Files turned out to be damaged or missing. The checkpoint is never the latest or the best."""


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """An experiment as recorded in the tracking store."""

    id: int
    """Id assigned by the store."""
    state: State
    """Present state."""
    name: str
    """Name from the config, or as edited since."""
    description: str
    """Description from the config, or as edited since."""
    owner: str
    """Name of the user who created it."""
    config: Mapping[str, Any]
    """Complete, validated config. A `SECRET_REFERENCE` stands for each secret."""
    original_config: str
    """Text of the config as the user wrote it, without secrets."""
    labels: Sequence[str]
    """Labels from the config, or as edited since."""
    notes: str
    """Free text that users add."""
    progress: float
    """Share of the work that is done, 0 to 1."""
    error: str | None
    """Reason for the state ERROR, in one line."""
    unmanaged: bool
    """Whether it was recorded by a script off the cluster. No runner starts or resumes it."""
    external_id: str | None
    """Id that the caller chose for an unmanaged experiment."""
    archived: bool
    """Whether users have put it aside."""
    start_time: datetime
    """Time at which it was recorded."""
    end_time: datetime | None
    """Time at which it reached a final state, or None before."""


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """A trial as recorded in the tracking store."""

    id: int
    """Id assigned by the store."""
    experiment_id: int
    """Id of its experiment."""
    request_id: int
    """Id that the search method chose. Negative once a restarted search has given that id to another trial."""
    state: State
    """Present state."""
    hparams: Mapping[str, Any]
    """Hyperparameter names mapped to values, nested as in the config."""
    seed: int
    """Seed of everything random in the trial."""
    run_id: int
    """Number of the newest run, from 1, or 0 before the first run."""
    restarts: int
    """Number of failed runs that count against ``max_restarts``."""
    steps_completed: int
    """Number of batches trained, by the newest report or checkpoint that no later run has superseded."""
    runner_state: str
    """Short status that the trial's code reported last."""
    searcher_length: int | None
    """Length to train to, as in `SearcherOperationRecord`, or None before the first searcher operation."""
    progress: float
    """Share of that length that is trained, 0 to 1."""
    ordered: int | None
    """Number of the search event that asked the trial to train, or None if the trial has nothing to do."""
    source_checkpoint: str | None
    """Checkpoint to start from while the trial has none of its own. None stands for the one that the config names."""
    metadata: Mapping[str, Any]
    """Metadata that the trial's code recorded about itself."""
    task_id: str
    """Id of the trial's task, the same for all of its runs."""
    external_id: str | None
    """Id that the caller chose for a trial of an unmanaged experiment."""
    start_time: datetime
    """Time at which it was recorded."""
    end_time: datetime | None
    """Time at which it reached a final state, or None before."""


class TrialOrder(str, Enum):
    """Sort orders for `TrackingStore.trial_results`. Trials without the value come last."""

    ID = "id"
    """Order of creation."""
    BEST = "best"
    """Best value of the searcher's metric first."""
    LATEST = "latest"
    """Latest value of the searcher's metric, the best first."""
    BATCHES = "batches"
    """Most batches trained first."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A finite value of the searcher's metric."""

    value: float
    """Value of the metric."""
    steps_completed: int
    """Number of batches trained at the validation."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial with its best and its latest validation."""

    trial: TrialRecord
    """The trial."""
    best: Validation | None
    """Best validation, or None if there is none with a finite value."""
    latest: Validation | None
    """Latest validation, or None if there is none with a finite value."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One start of a trial's processes. Every write of that start carries its ``run_id``."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Number of the run within the trial, from 1."""
    allocation_id: str
    """Id of the allocation that the processes belong to."""
    preemption_acknowledged: bool = False
    """Whether the run stopped before its work was done and expects to be started again."""
    early_exit: str | None = None
    """Reason for which the run stopped for good, as in the wire format, such as ``EXITED_REASON_INVALID_HP``."""


@dataclass(frozen=True, kw_only=True)
class SearcherOperationRecord:
    """Order to a trial to train up to ``length`` and then report the searcher's metric."""

    length: int
    """Total length since the start of the trial, in the unit of the config."""
    completed: bool
    """Whether the trial has trained that far."""
    metric: float | None
    """Value reported at completion, possibly NaN or infinite. None before."""


@dataclass(frozen=True, kw_only=True)
class SearchEvent:
    """An event that a search method received and the actions that it returned, both JSON-compatible."""

    number: int
    """Position in the log of the search, from 0."""
    event: Sequence[Any]
    """Name of the called method of the search method, followed by its arguments."""
    actions: Sequence[Sequence[Any]]
    """Name and fields of each returned action."""


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that a search creates."""

    hparams: Mapping[str, Any]
    """Hyperparameter names mapped to values, nested as in the config."""
    seed: int
    """Seed of everything random in the trial."""
    source_checkpoint: str | None
    """Checkpoint to start from, or None for the one that the config names."""


@dataclass(frozen=True, kw_only=True)
class TrialUpdate:
    """A change that a search makes to one of its trials."""

    request_id: int
    """Id that the search method chose for the trial."""
    state: State
    """State of the trial afterwards."""
    ordered: int | None = None
    """New value of `Trial.ordered`."""
    length: int | None = None
    """Length of a new searcher operation, > 0. None leaves the present operation as it is."""
    new: NewTrial | None = None
    """Trial to create. A trial with this request id from before a restart of the search continues, with its restarts
    counted from zero. If it differs from the new one, it is set aside and the new trial gets its request id."""


@dataclass(frozen=True, kw_only=True)
class MetricsReport:
    """Metrics that were reported for one (trial, group, step)."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Run that reported them."""
    group: str
    """``training``, ``validation`` or any other name without ``.``."""
    steps_completed: int
    """Number of batches trained at the time of the report."""
    metrics: Mapping[str, Any]
    """Metric names mapped to values."""
    batch_metrics: Sequence[Mapping[str, Any]] | None = None
    """Metrics of each batch since the previous report, oldest first."""
    time: datetime | None = None
    """Time of the report. None stands for now."""


@dataclass(frozen=True, kw_only=True)
class SystemMetrics:
    """Usage of a host's resources at one time during a run of a trial."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Run during which they were measured."""
    group: str
    """``cpu``, ``memory``, ``disk``, ``network`` or ``gpu``."""
    metrics: Mapping[str, Any]
    """Agent ids mapped to the values of that group."""
    time: datetime
    """Time of the measurement."""
    id: int = 0
    """Id assigned by the store, ascending."""


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """A checkpoint as recorded in the tracking store."""

    uuid: str
    """Id of the checkpoint, also in its storage."""
    trial_id: int
    """Trial that wrote it."""
    run_id: int
    """Run that wrote it."""
    state: CheckpointState
    """Present state."""
    steps_completed: int | None
    """Number of batches trained when it was saved. None for a checkpoint that is not completed."""
    storage: Mapping[str, Any]
    """``checkpoint_storage`` block that it was written with. A `SECRET_REFERENCE` stands for each secret."""
    resources: Mapping[str, int]
    """Stored paths mapped to sizes in bytes. Directories end in ``/`` and have size 0."""
    metadata: Mapping[str, Any]
    """Metadata that it was saved with, as edited since."""
    time: datetime
    """Time at which it was begun, replaced by the time at which it was completed."""
    error: str | None = None
    """Reason for the state ERROR, in one line."""


@dataclass(frozen=True, kw_only=True)
class ScoredCheckpoint:
    """A checkpoint with the value by which checkpoints are ranked."""

    checkpoint: CheckpointRecord
    """The checkpoint."""
    value: float | None
    """Value of the searcher's metric at the checkpoint's batch, or None if it was not validated there."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line that a trial's processes or its runner printed."""

    trial_id: int
    """Id of the trial."""
    run_id: int
    """Run that printed it."""
    rank: int
    """Rank of the worker that printed it."""
    stdtype: str
    """``stdout``, ``stderr``, or ``det`` for lines of the runner itself."""
    log: str
    """Text of the line without its newline."""
    time: datetime
    """Time at which it was received."""
    id: int = 0
    """Id assigned by the store, ascending."""


def searcher_metric(config: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the searcher's metric from an experiment's config, and whether smaller values are better.

    The metric is ``""`` if the config names none.
    """
    searcher: Mapping[str, Any] = config.get("searcher") or {}
    return searcher.get("metric") or "", searcher.get("smaller_is_better", True)


class TrackingStore(ModelRegistry, ABC):
    """Record of everything that happened in experiments, with the rules that keep it consistent.

    All methods are safe to call from several threads and processes, and after a fork.

    A ``lease`` argument is a holder as in `acquire_lease`. It makes the write fail if another runner has taken the
    experiment. Nothing is checked if it is empty.

    Raises:
        RecordNotFound: an id is unknown.
        StaleRun: the write belongs to a run, or has the ``lease`` of a runner, that was replaced.
        TypeError: a value is not JSON-compatible.
        StoreBusy: the database is locked or unavailable for too long.
        StoreCorrupt: the database is damaged.
        TrackingError: the store cannot do it for another reason.
    """

    url: str
    """Argument with which `det_core.tracking.open_store` opens the same store in another process."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """Unique id of this store, 32 hexadecimal digits."""

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
    ) -> ExperimentRecord:
        """Record a new experiment with the name, description and labels from its config.

        Args:
            config: complete, validated, JSON-compatible config with a `SECRET_REFERENCE` for each secret.
            original_config: text of the config as the user wrote it, also without secrets.
            model_definition: context directory as a gzipped tar file.
            owner: name of the user who creates it.
            unmanaged: whether a script off the cluster records it, so that no runner starts or resumes it.
            external_id: id that the caller chose. If an experiment with this id exists, it is returned unchanged.

        Returns:
            The recorded experiment.
        """

    @abstractmethod
    def experiment(self, experiment_id: int) -> ExperimentRecord:
        """Return one experiment."""

    @abstractmethod
    def experiments(
        self,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        order: str = "id",
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[ExperimentRecord]:
        """Return experiments, newest first by default.

        Args:
            states: include only these states; empty for all.
            name: include only names that contain this text, ignoring case.
            label: include only experiments with this label.
            archived: include only archived (True) or only other experiments (False).
            order: sort key. ``id``, ``start_time`` and ``progress`` sort the greatest first, and ``name``, ``owner``
                and ``state`` sort alphabetically. Equal experiments are sorted newest first.
            reverse: reverse the sort order.
            limit: maximum number of experiments.
            offset: number of experiments to skip.

        Raises:
            ValueError: ``order`` is unknown.
        """

    @abstractmethod
    def edit_experiment(
        self,
        experiment_id: int,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        add_labels: Sequence[str] = (),
        remove_labels: Sequence[str] = (),
        archived: bool | None = None,
    ) -> ExperimentRecord:
        """Change texts and labels that users maintain. None leaves a value unchanged.

        Args:
            add_labels: labels to append, unless the experiment has them.
            remove_labels: labels to remove. Labels that the experiment lacks are ignored.

        Returns:
            The experiment after the change.
        """

    @abstractmethod
    def delete_experiment(self, experiment_id: int, *, lease: str = "") -> None:
        """Delete an experiment with everything recorded about it.

        The caller removes the files of its checkpoints first.

        Raises:
            TrackingError: another runner holds its lease, or something in it is still needed. The message names it.
        """

    @abstractmethod
    def model_definition(self, experiment_id: int) -> bytes:
        """Return the gzipped tar file given to `create_experiment`."""

    @abstractmethod
    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        """Record a state. Final states set the end time, and others clear it.

        PAUSED is recorded as CANCELED if a user has requested an end in the meantime (`ENDINGS`).

        Args:
            error: reason for the state ERROR, in one line.

        Raises:
            StaleRun: ``lease`` is given but another runner has taken over the experiment.
        """

    @abstractmethod
    def request_experiment_state(self, experiment_id: int, state: State) -> bool:
        """Ask the runner of an experiment to stop it. A request never replaces a stronger one.

        Args:
            state: a key of `REQUESTS`.

        Returns:
            Whether the experiment has a runner. Without one, nothing changes.
        """

    @abstractmethod
    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None:
        """Record the share of the work that is done, 0 to 1."""

    # Search: an append-only log of the events that its method received. Searches are resumed from it.

    @abstractmethod
    def record_search(
        self,
        experiment_id: int,
        events: Sequence[SearchEvent],
        trials: Sequence[TrialUpdate],
        *,
        snapshot: Any = None,
        lease: str = "",
    ) -> list[TrialRecord]:
        """Append search events and apply everything that follows from them, in one transaction.

        Requests to end a trial stay in place, as in `set_trial_state`.

        Args:
            events: events to append, numbered consecutively after the last one.
            trials: changes to the trials of the search.
            snapshot: JSON-compatible state of the method after the events. None keeps the previous snapshot.

        Returns:
            The changed trials, in the order of ``trials``.

        Raises:
            TrackingError: an event with the same number exists.
        """

    @abstractmethod
    def forget_search(self, experiment_id: int, *, lease: str = "") -> None:
        """Delete the events, the snapshot and the orders to train of a search, so that it starts over.

        Trials that have not ended become CANCELED until the search creates them again (`TrialUpdate.new`).
        """

    @abstractmethod
    def search_snapshot(self, experiment_id: int) -> tuple[int, Any] | None:
        """Return the latest snapshot with the number of events before it, or None before the first snapshot.

        Returns:
            The number of events, and the method's state after them.
        """

    @abstractmethod
    def search_events(self, experiment_id: int, *, start: int = 0) -> list[SearchEvent]:
        """Return the events from number ``start`` on, in order."""

    # Lease: at most one runner owns an experiment.

    @abstractmethod
    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float, state: State | None = None) -> None:
        """Reserve the experiment for ``holder`` until ``seconds`` from now.

        Args:
            holder: ``"place:pid:start-time:random"`` of the runner (`det_core.runner`).
            seconds: duration of the lease.
            state: new state of the experiment, set atomically with the lease so that no request gets lost in between.

        Raises:
            ExperimentBusy: the lease of another holder has not expired. The message names the holder.
        """

    @abstractmethod
    def renew_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        """Extend the lease until ``seconds`` from now, even if it has expired.

        Raises:
            StaleRun: another holder has taken the experiment since, even if that holder has released it.
        """

    @abstractmethod
    def lease_holder(self, experiment_id: int) -> str | None:
        """Return the holder of a lease that has not expired, or None."""

    @abstractmethod
    def lease_holders(self) -> dict[int, str]:
        """Return the holders of all leases that have not expired, by experiment id."""

    @abstractmethod
    def release_lease(self, experiment_id: int, holder: str) -> None:
        """Release the lease. Do nothing if ``holder`` no longer has it."""

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
    ) -> TrialRecord:
        """Record a new QUEUED trial without runs.

        Args:
            hparams: hyperparameter names mapped to values, nested as in the config.
            seed: seed of everything random in the trial.
            request_id: id that the search method chose.
            external_id: id that the caller chose. If a trial with this id exists, it is returned unchanged.

        Returns:
            The recorded trial.
        """

    @abstractmethod
    def trial(self, trial_id: int) -> TrialRecord:
        """Return one trial."""

    @abstractmethod
    def trials(self, experiment_id: int, *, ordered: bool = False, states: Sequence[State] = ()) -> list[TrialRecord]:
        """Return the trials of an experiment in the order of their creation.

        Args:
            ordered: include only trials that the search is waiting for.
            states: include only these states; empty for all.
        """

    @abstractmethod
    def trial_results(
        self,
        experiment_id: int,
        *,
        states: Sequence[State] = (),
        order: TrialOrder = TrialOrder.ID,
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[TrialResult]:
        """Return trials with the best and the latest value of the experiment's searcher metric.

        Args:
            states: include only these states; empty for all.
            order: sort key.
            reverse: reverse the sort order. Trials without a value stay last.
            limit: maximum number of trials.
            offset: number of trials to skip.
        """

    @abstractmethod
    def set_trial_state(self, trial_id: int, state: State, *, lease: str = "") -> None:
        """Record a state, and set the end time if the state is final.

        Other states clear the end time. A request to end (`ENDINGS`) stays until a final state or another such request
        follows.

        Raises:
            StaleRun: as in `set_experiment_state`.
        """

    @abstractmethod
    def request_trial_end(self, trial_id: int) -> bool:
        """Ask the runner of a trial's experiment to end the trial at once.

        Returns:
            Whether the experiment has a runner and the trial has not ended. Otherwise nothing changes.
        """

    @abstractmethod
    def count_restart(self, trial_id: int, *, lease: str = "") -> int:
        """Add one to the trial's restarts and return the new number."""

    @abstractmethod
    def start_run(self, trial_id: int, *, allocation_id: str, lease: str = "") -> Run:
        """Begin a new run. From now on all writes of earlier runs are refused.

        Metrics of earlier runs beyond the latest completed checkpoint are archived, and ``steps_completed`` goes back
        to that checkpoint, since the new run starts from it.

        Args:
            allocation_id: id of the allocation that the processes belong to.
        """

    @abstractmethod
    def run(self, trial_id: int, run_id: int) -> Run:
        """Return one run of a trial."""

    @abstractmethod
    def acknowledge_preemption(self, trial_id: int, run_id: int) -> None:
        """Record that the run stops before its work is done and expects to be started again."""

    @abstractmethod
    def report_early_exit(self, trial_id: int, run_id: int, reason: str) -> None:
        """Record that the run stops for good.

        Args:
            reason: reason as in the wire format, such as ``EXITED_REASON_INVALID_HP``.
        """

    @abstractmethod
    def set_trial_progress(self, trial_id: int, run_id: int, progress: float) -> None:
        """Record the share of the trial's present work that is done, 0 to 1.

        For an unmanaged experiment, this is also recorded as the progress of the experiment.
        """

    @abstractmethod
    def set_runner_state(self, trial_id: int, run_id: int, status: str) -> None:
        """Record a short status that the trial's code reports."""

    @abstractmethod
    def set_trial_metadata(self, trial_id: int, run_id: int, metadata: Mapping[str, Any]) -> None:
        """Replace the trial's metadata with JSON-compatible metadata."""

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
        """Record that the trial uses a checkpoint of another trial, possibly as a version of a model."""

    @abstractmethod
    def trials_using(self, checkpoint_uuid: str) -> list[int]:
        """Return the ids of the trials that were recorded to use the checkpoint, ascending."""

    # Searcher operation: at most one per trial.

    @abstractmethod
    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        """Order the trial to train up to ``length`` (> 0). An operation of the same length stays as it is."""

    @abstractmethod
    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        """Return the operation set last, or None before the first."""

    @abstractmethod
    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        """Record that the run has trained up to ``length``, with this value of the searcher's metric.

        Raises:
            TrackingError: the operation has another length, or was completed before.
        """

    # Metrics

    @abstractmethod
    def report_metrics(self, reports: Sequence[MetricsReport]) -> None:
        """Write all reports in order in one transaction, or none of them.

        The keys of all reports for one (trial, group, step) are merged. A key reported again must have the same value.
        The first report of a newer run at a step archives the reports of older runs in the same group at that step or
        later, and in other groups later than that step. NaN and infinities are kept. The strings "NaN", "Infinity" and
        "-Infinity" are read back as these numbers.

        Raises:
            MetricsConflict: a key has another value, or batch metrics were reported twice. The message names the key.
            ValueError: the group is empty or contains ``.``, or ``epoch`` or ``epochs`` is not a number.
            StaleRun: a newer run of the trial exists.
        """

    @abstractmethod
    def metrics(
        self, trial_id: int, *, group: str | None = None, after: int = -1, archived: bool = False
    ) -> Iterator[MetricsReport]:
        """Return the reports of a trial by step, then group.

        Args:
            group: include only this group.
            after: include only steps greater than this.
            archived: return only archived reports instead of only the others.
        """

    @abstractmethod
    def best_validation(
        self, experiment_id: int, metric: str, *, smaller_is_better: bool
    ) -> tuple[float, int, int] | None:
        """Return the best finite value of a validation metric over the experiment, or None if there is none.

        Returns:
            The value, the trial id and the step.
        """

    @abstractmethod
    def curves(
        self, trial_ids: Collection[int], metric: str, *, group: str, points: int = 1000
    ) -> dict[int, list[tuple[int, float]]]:
        """Return for each trial the (step, value) pairs of a metric by step, wherever the value is a finite number.

        A trial with at most ``points`` reports in the group has all its values. A longer one has at most
        ``points + 1``: the first value, then always the first one at least 1/``points`` of the trial's steps later,
        and the last value. A minimum or maximum in between may be missing, because only reading every report would
        find it.

        Raises:
            ValueError: ``points`` is less than 1.
        """

    @abstractmethod
    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        """Add the samples in one transaction. Their ``id`` is ignored.

        Raises:
            StaleRun: a newer run of the trial exists.
        """

    @abstractmethod
    def system_metrics(self, trial_id: int, *, group: str | None = None, after: int = 0) -> list[SystemMetrics]:
        """Return the samples of all runs of a trial, in the order of their ids.

        Args:
            group: include only this group.
            after: include only ids greater than this.
        """

    # Checkpoints

    @abstractmethod
    def begin_checkpoint(self, uuid: str, *, trial_id: int, run_id: int, storage: Mapping[str, Any]) -> None:
        """Record an ACTIVE checkpoint before its first byte is written.

        Args:
            storage: ``checkpoint_storage`` block that it is written with.
        """

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
        """Change a checkpoint to COMPLETED after its last byte is stored.

        Args:
            steps_completed: number of batches trained.
            resources: stored paths mapped to sizes in bytes.
            metadata: JSON-compatible metadata.
        """

    @abstractmethod
    def delete_checkpoint(
        self, uuid: str, *, only: CheckpointState | None = None, remaining: Mapping[str, int] | None = None
    ) -> bool:
        """Change a checkpoint to DELETED without resources, after its files were deleted.

        Args:
            only: change nothing if the checkpoint is in any other state.
            remaining: resources that remain. If there are some, the state becomes PARTIALLY_DELETED.

        Returns:
            Whether the state was changed.

        Raises:
            RecordInUse: the checkpoint is a version of a model. The message names the versions.
        """

    @abstractmethod
    def fail_checkpoint(self, uuid: str, error: str) -> None:
        """Change a COMPLETED checkpoint to ERROR because its files are damaged or missing.

        A checkpoint in any other state stays as it is.

        Args:
            error: reason, in one line.
        """

    @abstractmethod
    def edit_checkpoint_metadata(
        self, uuid: str, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> CheckpointRecord:
        """Remove top-level keys of the metadata, then add or replace others.

        The stored files do not change. Their ``metadata.json`` keeps the metadata that the checkpoint was saved with.

        Returns:
            The checkpoint after the change.
        """

    @abstractmethod
    def checkpoint(self, uuid: str) -> CheckpointRecord:
        """Return one checkpoint."""

    @abstractmethod
    def checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
    ) -> list[CheckpointRecord]:
        """Return the checkpoints of one trial, of one experiment, or all, in the order in which they were begun.

        The order does not depend on clocks, so the last one of a trial is its latest even if a clock was set back.

        Args:
            states: include only these states.
        """

    @abstractmethod
    def checkpoint_validations(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, uuid: str | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """Return the validation metrics at each checkpoint's batch by uuid.

        Checkpoints that were not validated at their batch are left out.
        """

    @abstractmethod
    def scored_checkpoints(
        self,
        experiment_id: int,
        *,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
        limit: int | None = None,
    ) -> list[ScoredCheckpoint]:
        """Return the checkpoints of an experiment, the best by the searcher's metric first.

        Equal checkpoints are sorted in the order in which they were begun. Those that were not validated come last.

        Args:
            trial_id: include only checkpoints of this trial.
            states: include only these states.
            limit: maximum number of checkpoints.
        """

    # Logs

    @abstractmethod
    def add_logs(self, lines: Sequence[LogLine]) -> None:
        """Append log lines. Their ``id`` is ignored."""

    @abstractmethod
    def logs(self, trial_id: int, *, after: int = 0, limit: int | None = None) -> list[LogLine]:
        """Return the log lines of a trial in the order of their ids.

        Args:
            after: include only ids greater than this.
            limit: maximum number of lines.
        """

    @abstractmethod
    def latest_logs(self, experiment_id: int) -> dict[int, int]:
        """Return the id of the latest log line of each trial, or 0 for a trial without lines."""

    @abstractmethod
    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""

    def __enter__(self) -> TrackingStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
