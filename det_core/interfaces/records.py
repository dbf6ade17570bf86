"""Records of experiments, trials, runs, searches, metrics, checkpoints and log lines in the tracking store.

Times are UTC and timezone-aware. States are the names of the wire format without ``STATE_`` (``COMPLETED``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from det_core.errors import UnwritableText

__all__ = [
    "CHECKPOINT_ID",
    "Changes",
    "CheckpointRecord",
    "CheckpointState",
    "CodeVersion",
    "EXPERIMENT_ORDERS",
    "ExperimentRecord",
    "ExperimentSummary",
    "LONGEST_BRIEF",
    "LONGEST_NAME",
    "LONGEST_SEARCH",
    "LOG_LEVELS",
    "LogLine",
    "MAX_STEPS",
    "Machine",
    "MetricValues",
    "MetricsReport",
    "NewTrial",
    "Run",
    "SHOWN_CHECKPOINT_STATES",
    "STATE_WORDS",
    "ScoredCheckpoint",
    "SearchEvent",
    "Shortened",
    "SearcherOperationRecord",
    "State",
    "SystemMetrics",
    "TRIAL_ORDERS",
    "TrialOrder",
    "TrialRecord",
    "TrialResult",
    "TrialUpdate",
    "Validation",
    "configured_slots",
    "current_placement",
    "is_stopped_early",
    "searcher_metric",
    "sort_options",
]

MAX_STEPS = 2**63 - 1
"""Maximum number of batches, or of the searcher's units, that can be recorded."""
MAX_ROWS = 10_000
"""Maximum number of rows that a transaction writes, so that others do not wait long. Workers report at most 1000."""
MAX_LABELS = 100
"""Maximum number of labels of an experiment, a model or a version."""
LONGEST_LABEL = 200
"""Maximum number of characters of a label."""
LARGEST_VALUE = 1 << 20
"""Maximum number of characters of a text or JSON value that lists of experiments, trials and models read."""
LARGEST_RECORD = 4 << 20
"""Maximum number of characters of a JSON value of which a page reads many: the metrics of a report, and the storage,
the files and the metadata of a checkpoint. While one is decoded, nothing else in the process runs."""
LARGEST_EVENT = 32 << 20
"""Maximum number of characters of the metrics of all batches of a report, of an event of a search, and of its actions,
as JSON."""
MAX_METRICS = 20_000
"""Maximum number of metrics of a report."""
LONGEST_NAME = 4000
"""Maximum number of characters of the name of a group or of a metric with curves, and of the holder of a lease."""
LARGEST_SAMPLE = 64 << 10
"""Maximum number of characters of a sample of system metrics as JSON, and of the packages and the GPUs of a machine.
A sample of a host with 16 GPUs has 3,000, and 300 packages have 8,000."""
MAX_MACHINES = 64
"""Maximum number of machines that a run records."""
MAX_GPUS = 64
"""Maximum number of GPUs of a machine."""
LONGEST_LINE = 128 << 10
"""Maximum number of characters of a line of a log. The end of a longer one is left out."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Levels of log lines, in ascending order."""
LONGEST_SEARCH = 200
"""Maximum number of characters of a text to look for in names and descriptions."""
SEARCHED = 10_000
"""Number of first characters of a name or description in which a text is looked for."""
LONGEST_BRIEF = 16 << 10
"""Maximum number of characters of a config or of hyperparameters, as JSON, of which lists read many."""


class Shortened(dict[str, Any]):
    """What lists keep of a config, or of hyperparameters, with more than `LONGEST_BRIEF` characters."""


CHECKPOINT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""Pattern of the ids of checkpoints, which are directories in a storage."""


def require_writable(text: str) -> None:
    """Check that every database can store the text.

    Some databases refuse a NUL or half of a surrogate pair, and others truncate or lose it.

    Raises:
        UnwritableText: the text contains one of them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        is_writable = False
    else:
        is_writable = "\0" not in text
    if not is_writable:
        raise UnwritableText(
            f"{text[:100]!r:.100} has a NUL or half of a surrogate pair, which no database can store; remove it"
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

    def __str__(self) -> str:
        return self.value

    @property
    def final(self) -> bool:
        """Whether the state lasts until a user resumes the experiment or trial."""
        return self in (State.COMPLETED, State.CANCELED, State.ERROR)


STATE_WORDS = {
    State.ACTIVE: "running",
    State.STOPPING_CANCELED: "stopping",
    State.STOPPING_KILLED: "stopping",
    State.QUEUED: "waiting",
    State.PAUSED: "paused",
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.ERROR: "failed",
}
"""Words for the states of experiments and trials, in the order of live displays."""

REQUESTS: Mapping[State, State] = {
    State.PAUSED: State.PAUSED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
}
"""Requests that a user can make of a running experiment, mildest first, mapped to the state that it ends in."""

ENDINGS = (State.STOPPING_CANCELED, State.STOPPING_KILLED)
"""Requests to end a single trial. Only a final state or another such request replaces them."""

TRAINING_STATE = "training"
"""`TrialRecord.runner_state` once a trial class has trained a batch in its current run."""


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


SHOWN_CHECKPOINT_STATES = tuple(state for state in CheckpointState if state is not CheckpointState.DELETED)
"""States of the checkpoints that users see, which are all except DELETED."""


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
class CodeVersion:
    """Commit of the git repository that the code of an experiment comes from."""

    commit: str
    """Id of the commit, 40 or 64 hexadecimal digits."""
    branch: str = ""
    """Branch, or an empty string if none was checked out."""
    tag: str = ""
    """Tag of the commit, if no branch was checked out."""
    is_changed: bool | None = None
    """Whether tracked files differed from the commit. None if git could not say so in time."""
    remote: str = ""
    """URL of the remote repository, without user names and passwords."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Machine on which processes of a run work."""

    host: str
    """Name of the host."""
    node: int = 0
    """Index of the machine among those of the run. That of the chief is 0."""
    system: str = ""
    """Operating system, such as ``Debian GNU/Linux 12 (bookworm)``."""
    kernel: str = ""
    """Kernel and architecture, such as ``Linux 6.1.0 x86_64``."""
    python: str = ""
    """Version of Python."""
    cpus: int = 0
    """Number of CPUs."""
    cpu_model: str = ""
    """Model of the CPUs."""
    memory: int = 0
    """Memory in bytes."""
    gpus: Sequence[Mapping[str, Any]] = ()
    """``name``, ``memory`` in bytes and ``driver`` of each GPU that the processes see, at most `MAX_GPUS`."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the installed packages by name, at most `LARGEST_SAMPLE` characters as JSON."""


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
    interruptions: int
    """Number of runs that the engine ended, by preemption, a time limit or the loss of a node."""
    steps_completed: int
    """Number of batches trained, by the newest report or checkpoint that no later run has superseded."""
    runner_state: str
    """Short status that the trial's code reported last."""
    placement: str
    """Phase and place of the present launch, such as ``running on n1, n2 (Slurm job 4711)``. Empty on this machine."""
    searcher_length: int | None
    """Length to train to, as in `SearcherOperationRecord`, or None before the first searcher operation."""
    total_batches: int | None
    """Number of batches in that length, or None until a worker has computed the first one from its data."""
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


TRIAL_ORDERS: Mapping[str, TrialOrder] = {order.value: order for order in TrialOrder}
"""Orders of `TrackingStore.trial_results`, by the sort key of a list."""
EXPERIMENT_ORDERS: Mapping[str, str] = {
    "id": "id",
    "name": "name",
    "state": "state",
    "progress": "progress",
    "started": "start_time",
    "owner": "owner",
}
"""Orders of `TrackingStore.experiments`, by the sort key of a list."""


def sort_options(key: str, orders: Mapping[str, Any], default: str = "id") -> dict[str, Any]:
    """Return the arguments of a list of the tracking store that sort it by a key.

    Args:
        key: the sort key. One that is in no order is the name of a value.
        orders: `TRIAL_ORDERS` or `EXPERIMENT_ORDERS`.
        default: sort key of the order that a value replaces.
    """
    return {"order": orders.get(key, orders[default]), "sort_by": "" if key in orders else key}


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A finite value of the searcher's metric."""

    value: float
    """Value of the metric."""
    steps_completed: int
    """Number of batches trained at the validation."""


@dataclass(frozen=True, kw_only=True)
class MetricValues:
    """Values of a metric of a trial."""

    latest: float
    """Newest value, which may be NaN or infinite."""
    steps_completed: int
    """Number of batches trained at that value."""
    least: float | None
    """Least finite value, or None if there is none."""
    greatest: float | None
    """Greatest finite value, or None if there is none."""


@dataclass(frozen=True, kw_only=True)
class ExperimentSummary:
    """Numbers about an experiment that lists show next to its record."""

    trials: int
    """Number of trials."""
    running_trials: int
    """Number of trials in the state ACTIVE."""
    failed_trials: int
    """Number of trials in the state ERROR."""
    checkpoints: int
    """Number of checkpoints in the state COMPLETED."""
    checkpoint_bytes: int
    """Size of these checkpoints in bytes."""
    best: Validation | None
    """Best validation of all trials by the searcher's metric, or None if there is none with a finite value."""
    best_trial_id: int | None
    """Trial of that validation."""
    slot_hours: float
    """Sum of slots times hours over all runs until now, without waiting, pauses and ``uncounted_runs``."""
    uncounted_runs: int
    """Number of runs that have recorded no slots, and whose config does not say how many they have."""


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
    start_time: datetime | None = None
    """Time at which it began. None only in a worker, which does not know it."""
    end_time: datetime | None = None
    """Time at which its processes ended, or None before."""
    end_reason: str = ""
    """Reason for which its processes ended before their work was done, in one line."""
    exit_code: int | None = None
    """Exit code of its processes, negative for a signal. None before the end, and if the runner did not see it."""
    cause: str = ""
    """What the launcher said about its end, such as ``node lost``. Empty if its processes ended by themselves."""
    start_step: int | None = None
    """Number of batches of the checkpoint that it started from. None for runs that det-core 0.1 recorded."""
    slots: int | None = None
    """Number of slots that it has or waits for, or 0 if its processes were never started. None before its launch, and
    if it is unknown."""
    placement: str = ""
    """Nodes and job of its launch, as in `TrialRecord.placement`. Empty on this machine."""


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
    """New value of `TrialRecord.ordered`."""
    length: int | None = None
    """Length of a new searcher operation, > 0. None leaves the present operation as it is."""
    new: NewTrial | None = None
    """Trial to create. A trial with this request id from before a restart of the search continues, with its restarts
    and interruptions counted from zero. If it differs from the new one, it is set aside and the new trial gets its
    request id."""


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
    size: int
    """Size of all files in bytes."""


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
    """Text of the line without its newline, of which the first `LONGEST_LINE` characters are recorded."""
    time: datetime
    """Time at which it was received."""
    id: int = 0
    """Id assigned by the store, ascending."""
    level: str = "INFO"
    """One of `LOG_LEVELS`, which the line names or follows from it. Lines that det-core 0.1 recorded have INFO."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Additions to the tracking store between two calls of `TrackingStore.changes`."""

    cursor: str
    """Argument of the next call."""
    experiments: Collection[int] = ()
    """Ids of experiments that are new or have new trials."""
    metrics: Collection[int] = ()
    """Ids of trials with new reports of metrics."""
    system_metrics: Collection[int] = ()
    """Ids of trials with new system metrics."""
    checkpoints: Collection[int] = ()
    """Ids of trials that have begun checkpoints."""
    logs: Collection[int] = ()
    """Ids of trials with new log lines."""


def native_command(internal: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the path and the arguments of the script, or an empty tuple if no script called `create`.

    Args:
        internal: ``internal`` of the config.
    """
    native = (internal or {}).get("native")
    command = native.get("command") if isinstance(native, dict) else None
    return tuple(map(str, command)) if isinstance(command, (list, tuple)) else ()


def searcher_metric(config: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the searcher's metric from an experiment's config, and whether smaller values are better.

    The metric is ``""`` if the config names none, or one with more than `LONGEST_NAME` characters.
    """
    searcher = config.get("searcher")
    if not isinstance(searcher, Mapping):
        return "", True
    metric = searcher.get("metric")
    if not isinstance(metric, str) or len(metric) > LONGEST_NAME:
        metric = ""
    return metric, bool(searcher.get("smaller_is_better", True))


def configured_slots(config: Mapping[str, Any]) -> int | None:
    """Return how many slots each run of an experiment has by its config, or None if they differ or it is unknown."""
    resources = config.get("resources")
    if not isinstance(resources, Mapping) or resources.get("min_slots_per_trial"):
        return None
    slots = resources.get("slots_per_trial")
    return max(slots, 1) if isinstance(slots, int) and slots <= MAX_STEPS else None


_PLACED = (State.QUEUED, State.ACTIVE, State.STOPPING_CANCELED, State.STOPPING_KILLED)
"""States of trials that a launcher has not finished with."""


def current_placement(trial: TrialRecord) -> str:
    """Return where the trial is, or "" if it has ended, is paused, or runs on this machine."""
    return trial.placement if trial.state in _PLACED else ""


def is_stopped_early(trial: TrialRecord, config: Mapping[str, Any]) -> bool:
    """Return whether a trial has completed a shorter training than its search gives to the best ones.

    Args:
        trial: the trial.
        config: config of its experiment.
    """
    searcher = config.get("searcher")
    if trial.state is not State.COMPLETED or trial.searcher_length is None or not isinstance(searcher, Mapping):
        return False
    length = searcher.get("max_length") or searcher.get("length_per_round")
    whole = next(iter(length.values()), 0) if isinstance(length, Mapping) else length
    rounds = searcher.get("num_rounds", 1)
    return isinstance(whole, int) and isinstance(rounds, int) and trial.searcher_length < whole * rounds
