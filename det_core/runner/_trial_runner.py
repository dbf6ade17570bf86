"""Execution of one trial, with its restarts."""

from __future__ import annotations

import math
import shlex
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from numbers import Real
from pathlib import Path
from typing import Any

from det_core import events
from det_core.config import ExperimentConfig, is_command
from det_core.core import EarlyExitReason
from det_core.core.event_stream import EventStream
from det_core.errors import InvalidExperimentException, LaunchDelayed, LaunchError, NoCheckpoint, PluginError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Allocation, Cause, Exit, Launcher, LaunchRequest
from det_core.interfaces.records import CheckpointState, ExperimentRecord, Run, State, TrialRecord
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.launch._failure_notes import FAILURE_PREFIX
from det_core.runner._launch_preparation import prepare_launch
from det_core.runner._launch_request import build_launch_request
from det_core.runner._log_writer import LogWriter
from det_core.runner._placement_display import PlacementDisplay
from det_core.runner._repeated_failures import RepeatedFailureDetector
from det_core.runner._starting_point import StartingPoint, choose_starting_point
from det_core.similar_names import suggest_name

_TICK = 0.2
_SHOW_EVERY = 5.0
"""Seconds between two displays of the remaining time of a delay."""
_LAUNCH_TIMEOUT = 60.0
"""Seconds for which a launch is retried after its first failure."""
_FIRST_DELAY = 1.0
"""Seconds until an interrupted trial, or a launch that has failed, starts again for the first time."""
_MAX_DELAY = 300.0
"""Maximum number of seconds until an interrupted trial starts again."""
_PREEMPTION_TIMEOUT = 600.0
"""Seconds from a request to stop until the trial is killed, unless the config sets preemption_timeout."""
_NO_LAUNCH = (PluginError, InvalidExperimentException)
_INTERRUPTIONS = (Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.NODE_LOST)
"""Causes that are not the trial's fault."""
_NOT_STARTED = (126, 127)
"""Exit codes with which shells and our launcher report a command that could not be started."""


class TrainingOutcome(Enum):
    """Outcome of an order to train a trial.

    Attributes:
        COMPLETED: the trial has finished its order.
        STOPPED: the trial has stopped itself early.
        INVALID_HP: the trial has rejected its hyperparameters.
        FAILED: the trial has failed and is not restarted.
        INTERRUPTED: the trial has stopped on request.
        POSTPONED: the trial could not be started, and waits until the experiment is resumed.
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


@dataclass(frozen=True)
class TrainingResult:
    """Result of an order to train a trial.

    Attributes:
        outcome: the outcome.
        metric: the searcher metric of a COMPLETED trial, or NaN if it has reported none.
        error: the reason why the trial has FAILED or is POSTPONED or PAUSED.
        trained: whether the trial is known to have trained a batch, now or earlier.
    """

    outcome: TrainingOutcome
    metric: float = math.nan
    error: str | None = None
    trained: bool = True


@dataclass(frozen=True, kw_only=True)
class TrialRunner:
    """Runner for the trials of one experiment. It may be used from any thread.

    Args:
        store: the tracking store.
        experiment: the experiment.
        config: its config.
        code: its code, which all launches share.
        launcher: the launcher that starts the processes.
        lease: the holder of the experiment's lease.
        storage: the storage of the experiment's checkpoints.
        from_beginning: whether a trial that has lost all its checkpoints starts from the beginning.
        stream: receivers of events.
    """

    store: TrackingStore
    experiment: ExperimentRecord
    config: ExperimentConfig
    code: bytes = field(repr=False)
    launcher: Launcher
    lease: str
    storage: StorageManager
    from_beginning: bool
    stream: EventStream

    def run(self, trial: TrialRecord, requested: Callable[[], State | None]) -> TrainingResult:
        """Run the trial from its newest intact checkpoint, with up to max_restarts restarts.

        Args:
            trial: the trial to run.
            requested: function that returns the current request, a key of `REQUESTS`, or None to continue training.
        """
        watch = RepeatedFailureDetector(self.store, trial.id, is_silent=is_command(self.config.entrypoint))
        delay = _FIRST_DELAY
        while not requested():
            self.store.set_trial_state(trial.id, State.ACTIVE, lease=self.lease)
            if self.store.trial(trial.id).state is not State.ACTIVE:
                break  # its end was requested
            began = time.monotonic()
            try:
                start = self._starting_point(trial)
                run = self.store.start_run(trial.id, allocation_id=str(uuid.uuid4()), lease=self.lease)
                watch.started()
                end, error = self._run_once(trial, run, start, requested)
                self.store.end_run(trial.id, run.run_id, reason=error if end.code else "", lease=self.lease)
            except (LaunchError, NoCheckpoint) as problem:
                if requested():
                    continue
                outcome = TrainingOutcome.POSTPONED if isinstance(problem, LaunchError) else TrainingOutcome.PAUSED
                return TrainingResult(outcome, error=str(problem))
            except _NO_LAUNCH as failure:
                return TrainingResult(TrainingOutcome.FAILED, error=str(failure), trained=watch.has_trained)
            run = self.store.run(trial.id, run.run_id)
            if run.early_exit == EarlyExitReason.INVALID_HP.value:  # workers that waited for it may have failed
                return TrainingResult(TrainingOutcome.INVALID_HP)
            succeeded = end.code == 0
            if succeeded and run.early_exit:
                return TrainingResult(TrainingOutcome.STOPPED)
            if succeeded and not run.preemption_acknowledged:
                return TrainingResult(TrainingOutcome.COMPLETED, metric=self._searcher_metric(trial, run))
            if requested():
                continue
            if end.cause is Cause.CANCELED:
                return TrainingResult(TrainingOutcome.PAUSED, error=error)
            if end.cause in _INTERRUPTIONS:
                if self._has_room_for_interruption(trial):
                    if time.monotonic() - began > _MAX_DELAY:
                        delay = _FIRST_DELAY
                    self._note(trial, run, f"it starts again in {delay:.0f} s")
                    self._delay(run, f"interrupted ({end.cause.value}), starts again", delay, requested)
                    delay = min(2 * delay, _MAX_DELAY)
                    continue
                error = f"{error}; launcher.max_interruptions is {self.config.launcher.max_interruptions}"
                return TrainingResult(TrainingOutcome.FAILED, error=error, trained=watch.has_trained)
            if succeeded:
                continue  # it stopped on request
            if self._was_damaged(start):
                continue  # the next run starts from an older checkpoint
            failures = self.store.count_restart(trial.id, lease=self.lease)
            not_started = is_command(self.config.entrypoint) and end.code in _NOT_STARTED
            if watch.failed_again(end.code, error):
                self._note(trial, run, "it failed in the same way twice before its first batch, so it is not restarted")
            elif not (not_started or end.code == EXIT_DO_NOT_RESTART or failures > self.config.max_restarts):
                continue
            return TrainingResult(
                TrainingOutcome.FAILED,
                error=self._not_started(end.code, error) if not_started else error,
                trained=watch.has_trained,
            )
        return TrainingResult(TrainingOutcome.INTERRUPTED)

    def _has_room_for_interruption(self, trial: TrialRecord) -> bool:
        """Count an interruption, and return whether the trial may start again."""
        count, limit = self.store.count_interruption(trial.id, lease=self.lease), self.config.launcher.max_interruptions
        return limit is None or count <= limit

    def _delay(self, run: Run, what: str, seconds: float, requested: Callable[[], State | None]) -> None:
        """Wait until the time is over or a stop is requested, and show what happens in how many seconds."""
        end = time.monotonic() + seconds
        show_at = 0.0
        while not requested() and (left := end - time.monotonic()) > 0:
            if time.monotonic() >= show_at:
                show_at = time.monotonic() + _SHOW_EVERY
                self.store.set_trial_placement(run.trial_id, run.run_id, f"{what} in {left:.0f} s")
            time.sleep(min(_TICK, left))
        self.store.set_trial_placement(run.trial_id, run.run_id, "")

    def _log_writer(self, trial: TrialRecord, run: Run) -> LogWriter:
        return LogWriter(
            self.store,
            run,
            lambda lines: self.stream.emit(events.LogsRecorded, **_identity(trial, run), lines=lines),
        )

    def _note(self, trial: TrialRecord, run: Run, text: str) -> None:
        with self._log_writer(trial, run) as logs:
            logs.add(None, "det", f"trial {run.trial_id}: {text}")

    def _not_started(self, code: int, error: str) -> str:
        entrypoint = self.config.entrypoint
        command = shlex.join(entrypoint) if isinstance(entrypoint, tuple) else entrypoint
        return (
            f"the entrypoint {command!r} could not be started (exit code {code}: {error}); programs are looked up in "
            f"{Path(sys.executable).parent} and on PATH, files in the context directory; "
            "a trial class is written as module:Class"
        )

    def _run_once(
        self, trial: TrialRecord, run: Run, start: StartingPoint, requested: Callable[[], State | None]
    ) -> tuple[Exit, str]:
        name = f"run {run.run_id} of trial {trial.id}"
        reasons: list[str] = []
        with self._log_writer(trial, run) as logs:

            def log(rank: int | None, stdtype: str, text: str) -> None:
                if text.startswith(FAILURE_PREFIX):
                    reasons.append(text.removeprefix(FAILURE_PREFIX))
                logs.add(rank, stdtype, text)

            for line in start.warnings():
                logs.add(None, "det", line)
            logs.add(None, "det", f"{name} starts from {start}")
            self.stream.emit(events.TrialStarted, **_identity(trial, run))
            try:
                request = build_launch_request(
                    self.config,
                    trial,
                    run,
                    start.checkpoint,
                    experiment=self.experiment,
                    code=self.code,
                    store=self.store,
                    launcher=self.launcher,
                    log=log,
                )
                request = prepare_launch(request, trial, run, self.stream.shown_config)
                end = self._launch(request, run, logs, requested)
            except (LaunchError, *_NO_LAUNCH) as error:
                logs.add(None, "det", f"{name} could not be started: {error}")
                self.store.end_run(trial.id, run.run_id, reason=str(error), lease=self.lease)
                raise
            how = f"was terminated by signal {-end.code}" if end.code < 0 else f"exited with code {end.code}"
            cause = "" if end.cause is Cause.WORKERS else ": ".join(filter(None, (end.cause.value, end.message)))
            logs.add(None, "det", f"{name} {how} ({cause})" if cause else f"{name} {how}")
            reported = [*reasons, logs.error] if end.code > 0 else []
            return end, next(filter(None, [cause, *reported]), f"the worker {how}")

    def _launch(self, request: LaunchRequest, run: Run, logs: LogWriter, requested: Callable[[], State | None]) -> Exit:
        """Launch the processes and wait for their end. Retry for a minute if they do not start.

        Raises:
            LaunchError: they were not started.
        """
        give_up_at: float | None = None
        delay = _FIRST_DELAY
        while True:
            try:
                end = self._watch(self.launcher.start(request), run, logs, requested)
                if end.cause is not Cause.NOT_STARTED:
                    return end
                problem = end.message
            except LaunchDelayed as delayed:
                problem = str(delayed)
            give_up_at = give_up_at or time.monotonic() + _LAUNCH_TIMEOUT
            if requested() or time.monotonic() + delay > give_up_at:
                raise LaunchDelayed(problem)
            logs.add(None, "det", f"not started yet, trying again: {problem}")
            self._delay(run, f"not started ({problem}), next attempt", delay, requested)
            delay *= 2

    def _watch(self, allocation: Allocation, run: Run, logs: LogWriter, requested: Callable[[], State | None]) -> Exit:
        """Wait for the end of a launch, pass requests to stop on to it, and show its state."""
        kill_at: float | None = None
        with closing(allocation):
            display = PlacementDisplay(self.store, run, logs, lease=self.lease)
            while True:
                display.show(allocation.status())
                try:
                    end = allocation.wait(_TICK)
                except LaunchError:
                    display.clear()
                    raise
                if end is not None:
                    display.clear()
                    return end
                logs.check()
                request = requested()
                if request and kill_at is None:
                    timeout = self.config.preemption_timeout
                    kill_at = time.monotonic() + (_PREEMPTION_TIMEOUT if timeout is None else timeout)
                    allocation.preempt()
                if request is State.STOPPING_KILLED or (kill_at and time.monotonic() > kill_at):
                    allocation.kill()

    def _searcher_metric(self, trial: TrialRecord, run: Run) -> float:
        """Return the metric of the completed searcher operation, else of the latest validation."""
        operation = self.store.searcher_operation(trial.id)
        if operation and operation.metric is not None:
            return operation.metric
        metric, last = self.config.searcher.metric, None
        for last in self.store.metrics(trial.id, group="validation"):  # noqa: B007  (the last one is needed)
            pass
        value = last.metrics.get(metric) if last else None
        if isinstance(value, Real):
            return float(value)
        if last:
            self._note(
                trial,
                run,
                f"WARNING: it reported no number as {metric!r}, which is searcher.metric, but "
                f"{', '.join(map(repr, last.metrics))}{suggest_name(metric, last.metrics)}",
            )
        return math.nan

    def _starting_point(self, trial: TrialRecord) -> StartingPoint:
        return choose_starting_point(
            self.store, self.storage, trial, self.config.searcher, from_beginning=self.from_beginning
        )

    def _was_damaged(self, start: StartingPoint) -> bool:
        """Return whether the run found that its starting checkpoint is damaged."""
        latest = start.checkpoint
        return latest is not None and self.store.checkpoint(latest.uuid).state is CheckpointState.ERROR


def _identity(trial: TrialRecord, run: Run) -> dict[str, Any]:
    """Return the fields that events of a run have."""
    return {"trial_id": trial.id, "run_id": run.run_id, "hparams": trial.hparams}
