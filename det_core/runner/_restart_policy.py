"""Restart policy of the runner."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from det_core.core import EarlyExitReason
from det_core.disk_errors import MENTIONED
from det_core.errors import ExperimentBusy, StaleRun
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Cause, Exit
from det_core.interfaces.records import Run, State

FIRST_DELAY = 1.0
"""Seconds until the next launch after the first of several ends in a row. Each further one doubles the delay."""
MAX_DELAY = 300.0
"""Maximum number of seconds until the next launch."""
_STORE_ERROR = re.compile(r"(^|\.|\brank \d+: )(StoreBusy|Unavailable): ")
"""Reason of a run that waited in vain for the tracking store. Those of several workers begin with a rank."""
_NO_PROGRAM = (126, 127)
"""Exit codes with which shells and our launcher report a command that could not be started."""


class End(Enum):
    """Ends of a run of a trial, and reasons why there was no run."""

    COMPLETED = auto()
    """The workers have trained as far as the search has ordered."""
    STOPPED = auto()
    """The workers have stopped the trial early."""
    INVALID_HP = auto()
    """The workers have rejected the hyperparameters."""
    YIELDED = auto()
    """The workers have stopped on request, and the trial continues."""
    DAMAGED = auto()
    """The checkpoint that the run started from is damaged."""
    INTERRUPTED = auto()
    """The engine has ended the run."""
    NO_STORE = auto()
    """The workers have stopped because the tracking store was unavailable for too long."""
    NO_DISK = auto()
    """The workers have stopped because a disk was full, over a quota, read-only or broken."""
    FAILED = auto()
    """The run has failed."""
    REPEATED = auto()
    """The run has failed in the same way as the one before, at the same batch after the same start."""
    NOT_RESTARTABLE = auto()
    """The run has failed, and would fail again after every restart."""
    NO_PROGRAM = auto()
    """The entrypoint could not be started."""
    UNUSABLE = auto()
    """A plugin or the config does not allow a launch."""
    CANCELED = auto()
    """Somebody has canceled the launch with the tools of the engine."""
    NO_CHECKPOINT = auto()
    """All checkpoints of the trial are gone."""
    NOT_STARTED = auto()
    """A launch has started no processes. The next attempt may succeed."""
    REFUSED = auto()
    """A launch has started no processes, and no attempt will succeed at the moment."""
    POSTPONED = auto()
    """The trial could not be launched when it was its turn in the search."""


class TrainingOutcome(Enum):
    """Outcome of an order to train a trial.

    Attributes:
        COMPLETED: the trial has finished its order.
        STOPPED: the trial has stopped itself early.
        INVALID_HP: the trial has rejected its hyperparameters.
        FAILED: the trial has failed and is not restarted.
        INTERRUPTED: the trial has stopped on request.
        POSTPONED: the trial could not be launched. Its turn comes again after the other trials that wait.
        PAUSED: the trial waits until the experiment is resumed, because its launch was canceled or because its
            checkpoints are gone.
    """

    COMPLETED = "completed"
    STOPPED = "stopped"
    INVALID_HP = "invalid_hp"
    FAILED = "error"
    INTERRUPTED = "interrupted"
    POSTPONED = "postponed"
    PAUSED = "paused"


class Count(Enum):
    """Numbers that decisions depend on."""

    FAILURES = auto()
    """Failed runs of the trial."""
    INTERRUPTIONS = auto()
    """Runs of the trial that the engine ended."""
    IDLE_INTERRUPTIONS = auto()
    """Interruptions in a row, also by requests, since the newest batch or checkpoint."""
    SHORT_RUNS = auto()
    """Interruptions in a row of runs shorter than `MAX_DELAY`, also by an unavailable tracking store."""
    DISK_ERRORS = auto()
    """Runs in a row that ended by an error of a disk, since the newest batch or checkpoint."""
    DISK_SECONDS = auto()
    """Seconds since the end of the first of these runs."""
    LAUNCH_ATTEMPTS = auto()
    """Failed attempts to launch the present run."""
    LAUNCH_SECONDS = auto()
    """Seconds since the first of these attempts failed."""
    FAILED_LAUNCHES = auto()
    """Failed launches in a row, of all trials of the search."""
    PASSED_OVER = auto()
    """Times that the trial could not be launched again after a launch of another one had succeeded."""


LIMITS: Mapping[Count, float] = {
    Count.IDLE_INTERRUPTIONS: 20,
    Count.DISK_SECONDS: 20,
    Count.LAUNCH_SECONDS: 60,
    Count.PASSED_OVER: 10,
}
"""Limits that are the same for all experiments."""
_EXPLANATIONS = {
    Count.INTERRUPTIONS: "launcher.max_interruptions is {limit:.0f}",
    Count.IDLE_INTERRUPTIONS: "it was interrupted {count:.0f} times in a row without a new batch or checkpoint; if its "
    "runs are too short to save one, lower min_checkpoint_period or checkpoint_interval",
    Count.DISK_SECONDS: "tried again for {count:.0f} s",
    Count.PASSED_OVER: "it could not be launched, and {count:.0f} times launches of other trials succeeded in between",
}
"""Additions to the error of a trial that has exceeded a limit."""
FAILURES = (End.FAILED, End.REPEATED, End.NOT_RESTARTABLE, End.NO_PROGRAM)
"""Ends that count against ``max_restarts``."""
NOT_LAUNCHED = (End.UNUSABLE, End.NOT_STARTED, End.REFUSED)
"""Ends of runs without processes."""


@dataclass(frozen=True)
class Decision:
    """Consequence of an end.

    Attributes:
        outcome: outcome of the order to train, or None if the trial is launched again.
        delay: seconds until the next launch.
        reason: explanation of the limit that was exceeded, or an empty string.
    """

    outcome: TrainingOutcome | None = None
    delay: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class _Rule:
    """Consequence of a kind of end.

    Attributes:
        outcome: outcome of the order to train, or None if the trial is launched again within the limits.
        limits: numbers with a limit.
        beyond: outcome once one of them has exceeded its limit.
        delay: number from which the delay until the next launch follows, or None for no delay.
    """

    outcome: TrainingOutcome | None = None
    limits: Sequence[Count] = ()
    beyond: TrainingOutcome = TrainingOutcome.FAILED
    delay: Count | None = None


_RULES: Mapping[End, _Rule] = {
    End.COMPLETED: _Rule(TrainingOutcome.COMPLETED),
    End.STOPPED: _Rule(TrainingOutcome.STOPPED),
    End.INVALID_HP: _Rule(TrainingOutcome.INVALID_HP),
    End.YIELDED: _Rule(limits=[Count.IDLE_INTERRUPTIONS]),
    End.DAMAGED: _Rule(),  # each run that finds damage starts from an older checkpoint than the one before
    End.INTERRUPTED: _Rule(limits=[Count.INTERRUPTIONS, Count.IDLE_INTERRUPTIONS], delay=Count.SHORT_RUNS),
    End.NO_STORE: _Rule(limits=[Count.IDLE_INTERRUPTIONS], beyond=TrainingOutcome.PAUSED, delay=Count.SHORT_RUNS),
    End.NO_DISK: _Rule(limits=[Count.DISK_SECONDS], beyond=TrainingOutcome.PAUSED, delay=Count.DISK_ERRORS),
    End.FAILED: _Rule(limits=[Count.FAILURES]),
    End.REPEATED: _Rule(TrainingOutcome.FAILED),
    End.NOT_RESTARTABLE: _Rule(TrainingOutcome.FAILED),
    End.NO_PROGRAM: _Rule(TrainingOutcome.FAILED),
    End.UNUSABLE: _Rule(TrainingOutcome.FAILED),
    End.CANCELED: _Rule(TrainingOutcome.PAUSED),
    End.NO_CHECKPOINT: _Rule(TrainingOutcome.PAUSED),
    End.NOT_STARTED: _Rule(
        limits=[Count.LAUNCH_SECONDS], beyond=TrainingOutcome.POSTPONED, delay=Count.LAUNCH_ATTEMPTS
    ),
    End.REFUSED: _Rule(TrainingOutcome.POSTPONED),
    End.POSTPONED: _Rule(limits=[Count.PASSED_OVER], delay=Count.FAILED_LAUNCHES),
}
_ENDS_BY_CAUSE = {
    Cause.CANCELED: End.CANCELED,
    Cause.PREEMPTED: End.INTERRUPTED,
    Cause.TIME_LIMIT: End.INTERRUPTED,
    Cause.NODE_LOST: End.INTERRUPTED,
}
"""Other causes, such as OUT_OF_MEMORY, are failures of the trial."""
OWN_ENDS = (End.COMPLETED, End.STOPPED, End.INVALID_HP)
"""Ends of a trial that a request to stop does not change."""


def classify_exit(end: Exit, run: Run, *, reason: str = "", is_command: bool) -> End:
    """Return the kind of the end of a launch.

    Args:
        end: what the launcher says.
        run: what the workers have recorded.
        reason: why they have failed, as they or the launcher say.
        is_command: whether the entrypoint is a command, not a trial class.
    """
    if end.cause is Cause.NOT_STARTED:
        return End.NOT_STARTED
    if run.early_exit == EarlyExitReason.INVALID_HP.value:  # workers that waited for it may have failed
        return End.INVALID_HP
    if end.code == 0 and run.early_exit:
        return End.STOPPED
    if end.code == 0 and not run.preemption_acknowledged:
        return End.COMPLETED
    if end.cause in _ENDS_BY_CAUSE:
        return _ENDS_BY_CAUSE[end.cause]
    if end.code == 0:
        return End.YIELDED
    if end.code == EXIT_DO_NOT_RESTART:
        return End.NOT_RESTARTABLE
    if _STORE_ERROR.search(reason):
        return End.NO_STORE
    if MENTIONED.search(reason):
        return End.NO_DISK
    return End.NO_PROGRAM if is_command and end.code in _NO_PROGRAM else End.FAILED


def decide(
    end: End, counts: Mapping[Count, float], limits: Mapping[Count, float], *, requested: bool = False
) -> Decision:
    """Return what follows an end.

    Args:
        end: the end.
        counts: how often what has happened, including this end. Missing ones are 0.
        limits: largest numbers after which a trial is launched again. Missing ones are infinite.
        requested: whether the trial is requested to stop.
    """
    rule = _RULES[end]
    if requested and end not in OWN_ENDS:
        return Decision(TrainingOutcome.INTERRUPTED)
    if rule.outcome:
        return Decision(rule.outcome)
    for each in rule.limits:
        count, limit = counts.get(each, 0), limits.get(each, math.inf)
        if count > limit:
            return Decision(rule.beyond, reason=_EXPLANATIONS.get(each, "").format(count=count, limit=limit))
    return Decision(delay=_delay_after(counts.get(rule.delay, 0)) if rule.delay else 0.0)


def has_stalled(*, training: int, waiting: Collection[int], failed: Collection[int]) -> bool:
    """Return whether a search is paused, because nothing can be launched.

    Args:
        training: number of trials that train.
        waiting: the trials that wait for their turn.
        failed: the trials whose launches have failed since the last one that succeeded.
    """
    return not training and (len(failed) > 1 or set(waiting) <= set(failed))


def request_after_error(error: BaseException | None) -> State:
    """Return the request to the trials that still train when their search has ended.

    Args:
        error: the error that has ended it, or None. If another runner holds the experiment, only a kill makes sense.
    """
    is_orderly = error is not None and not isinstance(error, (StaleRun, ExperimentBusy))
    return State.PAUSED if is_orderly else State.STOPPING_KILLED


def _delay_after(count: float) -> float:
    """Return the seconds until the next launch after a number of ends in a row."""
    doublings = min(max(count - 1, 0), math.log2(MAX_DELAY))  # more would overflow
    return min(FIRST_DELAY * 2**doublings, MAX_DELAY)
