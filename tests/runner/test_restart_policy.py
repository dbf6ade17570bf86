"""Rules on what follows the end of a run of a trial."""

from __future__ import annotations

import math

import pytest

from det_core.core import EarlyExitReason
from det_core.errors import ExperimentBusy, StaleRun, StoreBusy
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Cause, Exit
from det_core.interfaces.records import Run, State
from det_core.runner._restart_policy import (
    LIMITS,
    Count,
    Decision,
    End,
    TrainingOutcome,
    classify_exit,
    decide,
    has_stalled,
    request_after_error,
)

LIMITED = {**LIMITS, Count.FAILURES: 5, Count.INTERRUPTIONS: 30}
AGAIN = Decision()
FAILED = Decision(TrainingOutcome.FAILED)
PAUSED = Decision(TrainingOutcome.PAUSED)
POSTPONED = Decision(TrainingOutcome.POSTPONED)
TOO_OFTEN = Decision(TrainingOutcome.FAILED, reason="launcher.max_interruptions is 30")
IDLE = Decision(
    TrainingOutcome.FAILED,
    reason="it was interrupted 21 times in a row without a new batch or checkpoint; if its runs are too short to save "
    "one, lower min_checkpoint_period or checkpoint_interval",
)
PASSED_OVER = Decision(
    TrainingOutcome.FAILED,
    reason="it could not be launched, and 11 times launches of other trials succeeded in between",
)
STOP, INVALID = (reason.value for reason in (EarlyExitReason.USER_REQUESTED_STOP, EarlyExitReason.INVALID_HP))


def after(seconds: float) -> Decision:
    return Decision(delay=seconds)


@pytest.mark.parametrize(
    ("end", "counts", "decision"),
    [
        (End.COMPLETED, {}, Decision(TrainingOutcome.COMPLETED)),
        (End.STOPPED, {}, Decision(TrainingOutcome.STOPPED)),
        (End.INVALID_HP, {}, Decision(TrainingOutcome.INVALID_HP)),
        (End.YIELDED, {Count.IDLE_INTERRUPTIONS: 20}, AGAIN),
        (End.YIELDED, {Count.IDLE_INTERRUPTIONS: 21}, IDLE),
        (End.DAMAGED, {Count.FAILURES: 99}, AGAIN),
        (End.INTERRUPTED, {Count.INTERRUPTIONS: 1, Count.SHORT_RUNS: 1, Count.FAILURES: 99}, after(1)),
        (End.INTERRUPTED, {Count.INTERRUPTIONS: 30, Count.SHORT_RUNS: 0}, after(1)),
        (End.INTERRUPTED, {Count.INTERRUPTIONS: 31, Count.SHORT_RUNS: 0}, TOO_OFTEN),
        (End.INTERRUPTED, {Count.IDLE_INTERRUPTIONS: 20, Count.SHORT_RUNS: 9}, after(256)),
        (End.INTERRUPTED, {Count.IDLE_INTERRUPTIONS: 20, Count.SHORT_RUNS: 10}, after(300)),
        (End.INTERRUPTED, {Count.IDLE_INTERRUPTIONS: 1, Count.SHORT_RUNS: 10**9}, after(300)),
        (End.INTERRUPTED, {Count.IDLE_INTERRUPTIONS: 21, Count.SHORT_RUNS: 3}, IDLE),
        (End.NO_STORE, {Count.IDLE_INTERRUPTIONS: 20, Count.SHORT_RUNS: 3, Count.FAILURES: 99}, after(4)),
        (
            End.NO_STORE,
            {Count.IDLE_INTERRUPTIONS: 21, Count.SHORT_RUNS: 3},
            Decision(TrainingOutcome.PAUSED, reason=IDLE.reason),
        ),
        (End.NO_DISK, {Count.DISK_ERRORS: 3, Count.DISK_SECONDS: 20, Count.FAILURES: 99}, after(4)),
        (
            End.NO_DISK,
            {Count.DISK_ERRORS: 3, Count.DISK_SECONDS: 21},
            Decision(TrainingOutcome.PAUSED, reason="tried again for 21 s"),
        ),
        (End.FAILED, {Count.FAILURES: 5, Count.IDLE_INTERRUPTIONS: 99}, AGAIN),
        (End.FAILED, {Count.FAILURES: 6}, FAILED),
        (End.REPEATED, {Count.FAILURES: 2}, FAILED),
        (End.NOT_RESTARTABLE, {Count.FAILURES: 1}, FAILED),
        (End.NO_PROGRAM, {Count.FAILURES: 1}, FAILED),
        (End.UNUSABLE, {}, FAILED),
        (End.CANCELED, {}, PAUSED),
        (End.NO_CHECKPOINT, {}, PAUSED),
        (End.NOT_STARTED, {Count.LAUNCH_ATTEMPTS: 1, Count.LAUNCH_SECONDS: 0}, after(1)),
        (End.NOT_STARTED, {Count.LAUNCH_ATTEMPTS: 6, Count.LAUNCH_SECONDS: 60}, after(32)),
        (End.NOT_STARTED, {Count.LAUNCH_ATTEMPTS: 2, Count.LAUNCH_SECONDS: 60.1}, POSTPONED),
        (End.REFUSED, {}, POSTPONED),
        (End.POSTPONED, {Count.FAILED_LAUNCHES: 1, Count.PASSED_OVER: 0}, after(1)),
        (End.POSTPONED, {Count.FAILED_LAUNCHES: 99, Count.PASSED_OVER: 10}, after(300)),
        (End.POSTPONED, {Count.FAILED_LAUNCHES: 1, Count.PASSED_OVER: 11}, PASSED_OVER),
    ],
)
def test_what_follows_an_end(end: End, counts: dict[Count, float], decision: Decision) -> None:
    assert decide(end, counts, LIMITED) == decision


@pytest.mark.parametrize("end", End)
def test_a_request_stops_all_but_what_has_ended_by_itself(end: End) -> None:
    own = end in (End.COMPLETED, End.STOPPED, End.INVALID_HP)
    expected = decide(end, {}, LIMITED) if own else Decision(TrainingOutcome.INTERRUPTED)
    for counts in ({}, dict.fromkeys(Count, 1e6)):
        assert decide(end, counts, LIMITED, requested=True) == expected


def test_numbers_without_a_limit_are_unlimited() -> None:
    assert {decide(end, dict.fromkeys(Count, math.inf), {}).outcome for end in (End.FAILED, End.INTERRUPTED)} == {None}


@pytest.mark.parametrize(
    ("end", "run", "kind"),
    [
        (Exit(code=0), {}, End.COMPLETED),
        (Exit(code=0), {"early_exit": STOP}, End.STOPPED),
        (Exit(code=1), {"early_exit": STOP}, End.FAILED),
        (Exit(code=0), {"early_exit": INVALID}, End.INVALID_HP),
        (Exit(code=1, cause=Cause.NODE_LOST), {"early_exit": INVALID}, End.INVALID_HP),
        (Exit(code=0), {"preemption_acknowledged": True}, End.YIELDED),
        (Exit(code=0, cause=Cause.PREEMPTED), {"preemption_acknowledged": True}, End.INTERRUPTED),
        (Exit(code=0, cause=Cause.PREEMPTED), {}, End.COMPLETED),
        (Exit(code=-15, cause=Cause.PREEMPTED), {}, End.INTERRUPTED),
        (Exit(code=1, cause=Cause.TIME_LIMIT), {}, End.INTERRUPTED),
        (Exit(code=1, cause=Cause.NODE_LOST), {}, End.INTERRUPTED),
        (Exit(code=1, cause=Cause.CANCELED), {}, End.CANCELED),
        (Exit(code=1, cause=Cause.NOT_STARTED), {}, End.NOT_STARTED),
        (Exit(code=0, cause=Cause.NOT_STARTED), {}, End.NOT_STARTED),
        (Exit(code=-9, cause=Cause.OUT_OF_MEMORY), {}, End.FAILED),
        (Exit(code=1), {"preemption_acknowledged": True}, End.FAILED),
        (Exit(code=EXIT_DO_NOT_RESTART), {}, End.NOT_RESTARTABLE),
    ],
)
@pytest.mark.parametrize("is_command", [False, True])
def test_how_a_run_has_ended(end: Exit, run: dict[str, object], kind: End, is_command: bool) -> None:
    recorded = Run(trial_id=1, run_id=1, allocation_id="a", **run)  # type: ignore[arg-type]
    assert classify_exit(end, recorded, is_command=is_command) is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("det_core.errors.StoreBusy: locked", End.NO_STORE),
        ("det_core.tracking._outage.Unavailable: det.db is on a full disk", End.NO_STORE),
        ("rank 0: StoreBusy: locked", End.NO_STORE),
        ("det_core.errors.RankFailed: rank 0: Unavailable: det.db is on a full disk", End.NO_STORE),
        ("det_core.errors.TrackingError: read-only", End.FAILED),
        ("rank 1: DiskError: the disk of /data (0 MB free) is full", End.NO_DISK),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", End.NO_DISK),
        ("RuntimeError: the queue is Unavailable: try later", End.FAILED),
    ],
)
def test_workers_without_the_store_or_a_disk_have_not_failed(reason: str, kind: End) -> None:
    run = Run(trial_id=1, run_id=1, allocation_id="a")
    assert classify_exit(Exit(code=1), run, reason=reason, is_command=False) is kind


@pytest.mark.parametrize("code", [126, 127])
def test_only_a_command_has_a_program_that_may_be_missing(code: int) -> None:
    run = Run(trial_id=1, run_id=1, allocation_id="a")
    ends = [classify_exit(Exit(code=code), run, is_command=is_command) for is_command in (True, False)]
    assert ends == [End.NO_PROGRAM, End.FAILED]


@pytest.mark.parametrize(
    ("training", "waiting", "failed", "stalled"),
    [
        (0, [1, 2], [], False),
        (0, [1, 2], [1], False),
        (0, [1, 2, 3], [1, 2], True),
        (0, [1], [1], True),
        (1, [1, 2], [1, 2], False),
    ],
)
def test_when_a_search_pauses(training: int, waiting: list[int], failed: list[int], stalled: bool) -> None:
    assert has_stalled(training=training, waiting=waiting, failed=failed) is stalled


@pytest.mark.parametrize(
    ("error", "request_"),
    [
        (None, State.STOPPING_KILLED),
        (StaleRun(), State.STOPPING_KILLED),
        (ExperimentBusy(), State.STOPPING_KILLED),
        (StoreBusy(), State.PAUSED),
        (KeyError(), State.PAUSED),
        (KeyboardInterrupt(), State.PAUSED),
    ],
)
def test_what_an_error_of_the_search_requests_of_trials(error: BaseException | None, request_: State) -> None:
    assert request_after_error(error) is request_
