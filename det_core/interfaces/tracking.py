"""The one record of experiments, trials, metrics, checkpoints and logs, in domain words.

Times are UTC and aware. States are the wire's names without ``STATE_`` (``COMPLETED``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from det_core.errors import UnwritableText
from det_core.interfaces.models import ModelRegistry

SECRET_REFERENCE = re.compile(r"det-secret:[0-9a-f]{32}")
"""What recorded configs hold in the place of a secret; `det_core.tracking.secret_files` has the secrets."""


MOST_STEPS = 2**63 - 1
"""Maximum number of batches, or of the searcher's units, that can be recorded."""


def require_writable(text: str) -> None:
    """Raise UnwritableText for text that some databases refuse, and others would truncate or lose."""
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise UnwritableText(
            f"{text!r:.100} has a NUL or half of a surrogate pair, which no database can store; remove it"
        )


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

ENDINGS = (State.STOPPING_CANCELED, State.STOPPING_KILLED)
"""Requests to end a single trial. Only a final state or another such request replaces them."""

TRAINING_STATE = "training"
"""`Trial.runner_state` once a trial class has trained a batch in its current run."""


def stronger(one: State | None, other: State | None) -> State | None:
    """Return the stronger request. States that are no requests are the weakest."""
    severity = list(REQUESTS)
    return max((one, other), key=lambda state: severity.index(state) if state in severity else -1)


class CheckpointState(str, Enum):
    ACTIVE = "ACTIVE"
    """Being written; only the run that began it may complete it."""
    COMPLETED = "COMPLETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"
    """Some of its files were deleted; the others can still be restored, and no run starts from it."""
    DELETED = "DELETED"
    ERROR = "ERROR"
    """Files turned out to be damaged or missing. The checkpoint is never the latest or the best."""


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
    notes: str
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
    """Id that the search method chose. Negative once a restarted search has given that id to another trial."""
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
    searcher_length: int | None
    """How long it shall train by its latest order, as in `SearcherOperationRecord`."""
    progress: float
    """Share of that length that is trained, 0 to 1."""
    ordered: int | None
    """Number of the search event that asked it to train, until it has; None: it has nothing to do."""
    source_checkpoint: str | None
    """What it starts from while it has no checkpoint of its own; None: what the config says."""
    metadata: Mapping[str, Any]
    """What the trial's own code noted about itself."""
    task_id: str
    external_id: str | None
    start_time: datetime
    end_time: datetime | None


class TrialOrder(str, Enum):
    """What `TrackingStore.trial_results` sorts by; trials without such a value come last."""

    ID = "id"
    BEST = "best"
    """The best value first, whichever way is better."""
    LATEST = "latest"
    """Likewise, by the latest value."""
    BATCHES = "batches"
    """The longest trained first."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A finite value of the searcher's metric."""

    value: float
    steps_completed: int


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """A trial with what it has reached."""

    trial: Trial
    best: Validation | None
    latest: Validation | None


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
class SearchEvent:
    """What a search method was told, and what it asked for then; in types that JSON has."""

    number: int
    """0, 1, 2, ..."""
    event: Sequence[Any]
    """The name of its method and the arguments."""
    actions: Sequence[Sequence[Any]]
    """The name and the fields of each."""


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that a search creates."""

    hparams: Mapping[str, Any]
    seed: int
    source_checkpoint: str | None


@dataclass(frozen=True, kw_only=True)
class TrialUpdate:
    """What a search makes of one of its trials."""

    request_id: int
    state: State
    ordered: int | None = None
    """As in `Trial`."""
    length: int | None = None
    """Of a new searcher operation, > 0; None leaves it as it is."""
    new: NewTrial | None = None
    """Trial to create. A trial with this request id from before a restart of the search continues, with its restarts
    counted from zero. If it differs from the new one, it is set aside and the new trial gets its request id."""


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
    error: str | None = None
    """Reason for the state ERROR, in one line."""


@dataclass(frozen=True, kw_only=True)
class ScoredCheckpoint:
    checkpoint: Checkpoint
    value: float | None
    """The searcher's metric as it was validated at the checkpoint's batch."""


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


def searcher_metric(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The metric that an experiment's config searches by, ``""`` if there is none, and whether smaller is better."""
    searcher: Mapping[str, Any] = config.get("searcher") or {}
    return searcher.get("metric") or "", searcher.get("smaller_is_better", True)


class TrackingStore(ModelRegistry, ABC):
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
    ) -> list[Experiment]:
        """Newest first, or by another order, of equals the newest first.

        Args:
            states: only those in one of these; empty = all.
            name: only those whose name contains it, in either case of its letters.
            label: only those that have this label.
            archived: only those that are archived (True) or are not (False).
            order: ``id``, ``start_time``, ``progress``, the greatest first; ``name``, ``owner``, ``state``, from A on.
            reverse: the other way round.

        Raises:
            ValueError: another order.
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
    ) -> Experiment:
        """Change how people describe an experiment, and return the changed experiment. None leaves a value as it is.

        Args:
            add_labels: labels to append, unless the experiment has them.
            remove_labels: labels to remove. Labels that the experiment lacks are ignored.
        """

    @abstractmethod
    def delete_experiment(self, experiment_id: int, *, lease: str = "") -> None:
        """Forget it with all that was recorded of it. The files of its checkpoints are the caller's to remove before.

        Raises:
            TrackingError: another runner holds its lease, or something in it is still needed, which the error names.
        """

    @abstractmethod
    def model_definition(self, experiment_id: int) -> bytes:
        """The gzipped tar file given to `create_experiment`."""

    @abstractmethod
    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        """Record a state; final states set the end time, others clear it.

        PAUSED is recorded as CANCELED if somebody has asked for an end meanwhile (`ENDINGS`).

        Raises:
            StaleRun: ``lease`` is given but another runner has taken the experiment over.
        """

    @abstractmethod
    def request_experiment_state(self, experiment_id: int, state: State) -> bool:
        """Ask the runner of an experiment to stop it. A request never replaces a stronger one.

        Args:
            state: a key of `REQUESTS`.

        Returns:
            Whether the experiment has a runner. If not, nothing is changed.
        """

    @abstractmethod
    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None: ...

    # The search: an append-only log of what its method was told, from which it is resumed.

    @abstractmethod
    def record_search(
        self,
        experiment_id: int,
        events: Sequence[SearchEvent],
        trials: Sequence[TrialUpdate],
        *,
        snapshot: Any = None,
        lease: str = "",
    ) -> list[Trial]:
        """Add events with all that follows from them, in one transaction; the trials as they are then.

        Requests to end stay, as in `set_trial_state`.

        Args:
            events: numbered on from the last one.
            snapshot: the method's state after them; None keeps the last one.

        Raises:
            TrackingError: an event of that number is there.
        """

    @abstractmethod
    def forget_search(self, experiment_id: int, *, lease: str = "") -> None:
        """Remove its events, its snapshot and its orders to train, so that it begins again.

        Trials that have not ended are CANCELED, until the search asks for them again; see `TrialUpdate.new`.
        """

    @abstractmethod
    def search_snapshot(self, experiment_id: int) -> tuple[int, Any] | None:
        """The latest, after how many events it was taken first; None before the first."""

    @abstractmethod
    def search_events(self, experiment_id: int, *, start: int = 0) -> list[SearchEvent]:
        """In order, from that number on."""

    # The lease: at most one runner owns an experiment.

    @abstractmethod
    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float, state: State | None = None) -> None:
        """Take the experiment for ``holder`` until ``seconds`` from now.

        Args:
            holder: ``"place:pid:start-time:random"`` of the runner (`det_core.runner`).
            state: of the experiment from now on, in one step with the lease, so that no request falls between.

        Raises:
            ExperimentBusy: another holder's lease has not run out; it names the holder.
        """

    @abstractmethod
    def renew_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        """Prolong the lease until ``seconds`` from now, also if it has run out.

        Raises:
            StaleRun: another holder has taken the experiment since, even if it gave it back.
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
    def trials(self, experiment_id: int, *, ordered: bool = False, states: Sequence[State] = ()) -> list[Trial]:
        """In order of creation.

        Args:
            ordered: only those that the search waits for.
            states: only those in one of these; empty = all.
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
        """Trials with the best and the latest value of the experiment's searcher metric.

        Args:
            states: only those in one of these; empty = all.
            reverse: the other way round; what has no value stays last.
        """

    @abstractmethod
    def set_trial_state(self, trial_id: int, state: State, *, lease: str = "") -> None:
        """Record a state, and set the end time if the state is final. Raises as for experiments.

        Other states clear the end time. A request to end (`ENDINGS`) stays until a final state or another such
        request follows.
        """

    @abstractmethod
    def request_trial_end(self, trial_id: int) -> bool:
        """Ask the runner of a trial's experiment to end the trial at once.

        Returns:
            Whether the experiment has a runner and the trial has not ended. If not, nothing is changed.
        """

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
    def set_trial_progress(self, trial_id: int, run_id: int, progress: float) -> None:
        """Record the share of its present work that is done, 0 to 1.

        A script off the cluster makes up its experiment: that is as far.
        """

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
    def curve(self, trial_id: int, metric: str, *, group: str, points: int = 1000) -> list[tuple[int, float]]:
        """The (step, value) of a metric where it is a finite number, by step.

        Args:
            points: about as many, spread evenly over the steps, and the last one; fewer if fewer were reported.
        """

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

        Raises:
            RecordInUse: it is a version of a model; names them.
        """

    @abstractmethod
    def fail_checkpoint(self, uuid: str, error: str) -> None:
        """Change a COMPLETED checkpoint to ERROR because its files are damaged or missing.

        A checkpoint in any other state stays as it is.

        Args:
            error: what is wrong with it, in one line.
        """

    @abstractmethod
    def edit_checkpoint_metadata(
        self, uuid: str, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> Checkpoint:
        """Remove keys, then add or replace others, at the top level; the checkpoint as it is then.

        What is stored does not change: its ``metadata.json`` says what the checkpoint was saved with.
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
        """Return the checkpoints of one trial, of one experiment, or all, in the order in which they were begun.

        The order does not depend on clocks, so the last one of a trial is its latest even if a clock was set back.
        """

    @abstractmethod
    def checkpoint_validations(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, uuid: str | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """By uuid the validation metrics at each checkpoint's batch; without those that were not validated there."""

    @abstractmethod
    def scored_checkpoints(
        self,
        experiment_id: int,
        *,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
        limit: int | None = None,
    ) -> list[ScoredCheckpoint]:
        """Return the checkpoints, the best by the searcher's metric first.

        Among equal ones, the one begun first comes first. Those that were not validated come last.
        """

    # Logs

    @abstractmethod
    def add_logs(self, lines: Sequence[LogLine]) -> None: ...

    @abstractmethod
    def logs(self, trial_id: int, *, after: int = 0, limit: int | None = None) -> list[LogLine]:
        """In order; only ids greater than ``after``."""

    @abstractmethod
    def latest_logs(self, experiment_id: int) -> dict[int, int]:
        """Return the id of each trial's latest line, or 0 for a trial without lines."""

    @abstractmethod
    def close(self) -> None:
        """Release connections. The store must not be used afterwards."""

    def __enter__(self) -> TrackingStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
