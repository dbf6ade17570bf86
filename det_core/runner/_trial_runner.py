"""Execution of one trial, with its restarts."""

from __future__ import annotations

import math
import shlex
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import Any

from det_core import events
from det_core.config import ExperimentConfig, is_command
from det_core.core.event_stream import EventStream
from det_core.core.failure_notes import FAILURE_PREFIX, choose_cause
from det_core.core.intact_checkpoints import StartingPoint
from det_core.errors import DetError, InvalidExperimentException, LaunchError, NoCheckpoint, PluginError, TrackingError
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase
from det_core.interfaces.records import CheckpointState, ExperimentRecord, LogLine, Run, State, TrialRecord
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.metric_directions import suggest_metric
from det_core.runner._elastic_slots import ElasticSlots
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._launch_preparation import prepare_launch
from det_core.runner._launch_request import build_launch_request
from det_core.runner._launch_supervision import supervise_launch
from det_core.runner._log_writer import LogWriter, make_log_line
from det_core.runner._placement_display import PlacementDisplay
from det_core.runner._restart_policy import (
    FAILURES,
    LIMITS,
    NOT_LAUNCHED,
    OWN_ENDS,
    Count,
    End,
    TrainingOutcome,
    classify_exit,
    decide,
)
from det_core.runner._starting_point import choose_starting_point
from det_core.runner._trial_history import TrialHistory, find_orphaned_run, newest_run
from det_core.runner._warm_start import find_source_checkpoint
from det_core.tracking._rows import RUNNER_ENDED

_TICK = 0.2
_SHOW_EVERY = 5.0
"""Seconds between two displays of the remaining time of a delay."""
_ENDS_BY_ERROR: Mapping[type[Exception], End] = {
    NoCheckpoint: End.NO_CHECKPOINT,
    PluginError: End.UNUSABLE,
    InvalidExperimentException: End.UNUSABLE,
    Exception: End.REFUSED,
}
"""Ends of runs that an error prevents, by its class. The first class that fits counts."""


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


@dataclass(frozen=True)
class _Order:
    """Order to train a trial.

    Attributes:
        trial: the trial.
        history: its runs.
        requested: function that returns the current request, a key of `REQUESTS`, or None to continue training.
    """

    trial: TrialRecord
    history: TrialHistory
    requested: Callable[[], State | None]


@dataclass(frozen=True)
class _RunEnd:
    """End of a run.

    Attributes:
        kind: how it ended.
        reason: why, in one line. Empty if its work was done.
        cause: what the launcher says about its end.
        code: exit code of its processes, or None if there were none.
    """

    kind: End
    reason: str
    cause: Cause = Cause.WORKERS
    code: int | None = None


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
        renew_lease: function that renews the lease, and raises an error if another runner holds it.
        storage: the storage of the experiment's checkpoints.
        from_beginning: whether a trial that has lost all its checkpoints starts from the beginning.
        stream: receivers of events.
        launches: the failed launches of the experiment.
    """

    store: TrackingStore
    experiment: ExperimentRecord
    config: ExperimentConfig
    code: bytes = field(repr=False)
    launcher: Launcher
    lease: str
    renew_lease: Callable[[], None]
    storage: StorageManager
    from_beginning: bool
    stream: EventStream
    launches: FailedLaunches
    _histories: dict[int, TrialHistory] = field(default_factory=dict, init=False, repr=False)
    """Histories of the trials that are postponed, by trial id."""

    def run(self, trial: TrialRecord, requested: Callable[[], State | None]) -> TrainingResult:
        """Run the trial from its newest intact checkpoint, with up to max_restarts restarts.

        Args:
            trial: the trial to run.
            requested: function that returns the current request, a key of `REQUESTS`, or None to continue training.
        """
        history = self._histories.pop(trial.id, None) or self._new_history(trial)
        order = _Order(trial, history, requested)
        while not requested() and self._activate(trial):
            end = self._adopt_run(order) or self._unreported_end(order)
            if end is None and requested():
                break
            end = end or self._run_once(order)
            stops = requested() is not None
            if not stops:
                history.count(end.kind)
            decision = decide(end.kind, history.counts, self._limits, requested=stops)
            if decision.outcome:
                return self._result(order, end, decision.outcome, decision.reason)
            if decision.delay:
                self._log(trial, history.run, f"trial {trial.id}: it starts again in {decision.delay:.0f} s")
                what = f"interrupted ({end.cause.value}), starts again"
                self._delay(history.run, what, decision.delay, requested)
        return TrainingResult(TrainingOutcome.INTERRUPTED)

    def _new_history(self, trial: TrialRecord) -> TrialHistory:
        resources, is_silent = self.config.resources, is_command(self.config.entrypoint)
        counts = resources.slot_counts(trial.hparams.get("global_batch_size"))
        slots = ElasticSlots(counts, resources.elastic_timeout)
        return TrialHistory(self.store, trial.id, lease=self.lease, is_silent=is_silent, slots=slots)

    @cached_property
    def _limits(self) -> Mapping[Count, float]:
        interruptions = self.config.launcher.max_interruptions
        return {
            **LIMITS,
            Count.FAILURES: self.config.max_restarts,
            Count.INTERRUPTIONS: math.inf if interruptions is None else interruptions,
        }

    def _activate(self, trial: TrialRecord) -> bool:
        """Record that the trial is ACTIVE, and return whether it is, because its end may have been requested."""
        self.store.set_trial_state(trial.id, State.ACTIVE, lease=self.lease)
        return self.store.trial(trial.id).state is State.ACTIVE

    def _adopt_run(self, order: _Order) -> _RunEnd | None:
        """Continue the newest run if its processes have outlived its runner, and return its end. None if they have not.

        Its reports are those of the same run, so it is not fenced.
        """
        trial = order.trial
        run = find_orphaned_run(self.store, trial) if self.launcher.adopts else None
        if run is None:
            return None
        try:
            start = StartingPoint(find_source_checkpoint(self.store, self.config.searcher))
            number = self.store.continue_run(trial.id, run.run_id, lease=self.lease)
            order.history.start_run(run, start.checkpoint.uuid if start.checkpoint else None)
            if run.slots:
                order.history.slots.continue_run(run.slots)
            end = self._launch(order, start, adopted_as=number)
            why = end.reason if end.kind is End.NOT_STARTED else ""
        except TrackingError:
            raise
        except DetError as error:
            why = str(error)
        if why:
            self._log(trial, run, f"run {run.run_id} of trial {trial.id} does not go on: {why}")
            self.store.end_run(trial.id, run.run_id, reason=RUNNER_ENDED, lease=self.lease)
            return None
        self._end_run(order.history, end)
        return end

    def _unreported_end(self, order: _Order) -> _RunEnd | None:
        """Return the end of the newest run if its workers have ended it, but its runner did not live to report this."""
        run = newest_run(self.store, order.trial)
        if run is None or run.end_reason not in ("", RUNNER_ENDED):
            return None
        operation = self.store.searcher_operation(order.trial.id)
        kind = classify_exit(Exit(code=0), run, is_command=is_command(self.config.entrypoint))
        if kind not in OWN_ENDS or (kind is End.COMPLETED and not (operation and operation.completed)):
            return None
        order.history.run = run
        self._end_run(order.history, _RunEnd(kind, "", code=0))
        return _RunEnd(kind, "")

    def _result(self, order: _Order, end: _RunEnd, outcome: TrainingOutcome, limit: str) -> TrainingResult:
        trial, history = order.trial, order.history
        if outcome is TrainingOutcome.POSTPONED:
            self._histories[trial.id] = history
        if outcome is TrainingOutcome.COMPLETED:
            return TrainingResult(outcome, metric=self._searcher_metric(trial, history.run))
        if end.kind is End.REPEATED and outcome is TrainingOutcome.FAILED:
            note = "it failed in the same way twice, so it is not restarted (see restart_repeated_failures)"
            self._log(trial, history.run, f"trial {trial.id}: {note}")
        error = "; ".join(filter(None, [end.reason, limit]))
        return TrainingResult(outcome, error=error or None, trained=history.has_trained)

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

    def _log(self, trial: TrialRecord, run: Run, text: str) -> None:
        """Write a line to the log of a run that has no log writer."""
        line = make_log_line(run, None, "det", text)
        self.store.add_logs([line])
        self._show_logs(trial, run, [line])

    def _show_logs(self, trial: TrialRecord, run: Run, lines: Sequence[LogLine]) -> None:
        self.stream.emit(events.LogsRecorded, **_identity(trial, run), lines=lines)

    def _explain_missing_program(self, code: int, error: str) -> str:
        entrypoint = self.config.entrypoint
        command = shlex.join(entrypoint) if isinstance(entrypoint, tuple) else entrypoint
        return (
            f"the entrypoint {command!r} could not be started (exit code {code}: {error}); programs are looked up in "
            f"{Path(sys.executable).parent} and on PATH, files in the context directory; "
            "a trial class is written as module:Class"
        )

    def _run_once(self, order: _Order) -> _RunEnd:
        """Run the trial from its newest intact checkpoint until its processes end."""
        trial, history = order.trial, order.history
        run: Run | None = None
        try:
            start = self._starting_point(trial)
            run = self.store.start_run(trial.id, allocation_id=str(uuid.uuid4()), lease=self.lease)
            history.start_run(run, start.checkpoint.uuid if start.checkpoint else None)
            end = self._launch(order, start)
        except TrackingError:
            raise
        except Exception as error:  # noqa: BLE001  (it prevents this run only)
            kind = next(kind for known, kind in _ENDS_BY_ERROR.items() if isinstance(error, known))
            end = _RunEnd(kind, str(error) if isinstance(error, DetError) else f"{type(error).__name__}: {error}")
        if run:
            if end.kind in NOT_LAUNCHED:
                self._log(trial, run, f"run {run.run_id} of trial {trial.id} could not be started: {end.reason}")
            self._end_run(history, end)
        return end

    def _end_run(self, history: TrialHistory, end: _RunEnd) -> None:
        self.store.end_run(
            history.run.trial_id,
            history.run.run_id,
            reason=end.reason,
            exit_code=end.code,
            cause="" if end.cause is Cause.WORKERS else end.cause.value,
            slots=0 if end.code is None else None,
            lease=self.lease,
        )

    def _launch(self, order: _Order, start: StartingPoint, *, adopted_as: float | None = None) -> _RunEnd:
        """Launch a run, or adopt it with a number, and return how its processes have ended."""
        trial, run = order.trial, order.history.run
        name = f"run {run.run_id} of trial {trial.id}"
        reasons: list[str] = []
        with LogWriter(self.store, run, partial(self._show_logs, trial, run)) as logs:

            def log(rank: int | None, stdtype: str, text: str) -> None:
                if text.startswith(FAILURE_PREFIX):
                    reasons.append(text.removeprefix(FAILURE_PREFIX))
                logs.add(rank, stdtype, text)

            make_request = partial(self._make_request, order, start, log)
            if adopted_as is None:
                for line in start.warnings():
                    logs.add(None, "det", line)
                logs.add(None, "det", f"{name} starts from {start}")
                self.stream.emit(events.TrialStarted, **_identity(trial, run))
                ended = self._launch_until_started(order, make_request, logs)
            else:
                ended = self._adopt(order, make_request, adopted_as, logs)
            if ended.cause is Cause.NOT_STARTED:
                return _RunEnd(End.NOT_STARTED, ended.message, ended.cause)
            how = f"was terminated by signal {-ended.code}" if ended.code < 0 else f"exited with code {ended.code}"
            cause = "" if ended.cause is Cause.WORKERS else ": ".join(filter(None, (ended.cause.value, ended.message)))
            logs.add(None, "det", f"{name} {how} ({cause})" if cause else f"{name} {how}")
        reported = [choose_cause(reasons), logs.error] if ended.code > 0 else []
        reason = next(filter(None, [cause, *reported]), f"the worker {how}" if ended.code else "")
        return self._classify(ended, reason, order.history, start)

    def _adopt(self, order: _Order, make_request: Callable[[], LaunchRequest], number: float, logs: LogWriter) -> Exit:
        """Adopt the processes of a run, and wait for their end."""
        trial, run = order.trial, order.history.run

        def note_success() -> None:
            logs.add(None, "det", f"run {run.run_id} of trial {trial.id} goes on with another runner")
            self.stream.emit(events.TrialStarted, **_identity(trial, run))
            self.launches.add_success(trial.id)

        return self._supervise(
            order,
            lambda: self.launcher.adopt(make_request(), number),
            logs,
            note_success,
            partial(self._needs_change, order.history, make_request, logs),
        )

    def _supervise(
        self,
        order: _Order,
        start: Callable[[], Allocation],
        logs: LogWriter,
        on_running: Callable[[], None],
        needs_change: Callable[[Phase], bool],
    ) -> Exit:
        """Start or adopt processes, and wait for their end. The arguments are those of `supervise_launch`."""
        return supervise_launch(
            start,
            display=PlacementDisplay(self.store, order.history.run, logs, lease=self.lease),
            logs=logs,
            requested=order.requested,
            preemption_timeout=self.config.preemption_timeout,
            on_running=on_running,
            needs_change=needs_change,
            renew_lease=self.renew_lease if self.launcher.adopts else None,
        )

    def _make_request(
        self, order: _Order, start: StartingPoint, log: Callable[[int | None, str, str], None]
    ) -> LaunchRequest:
        history = order.history
        request = build_launch_request(
            self.config,
            order.trial,
            history.run,
            start.checkpoint,
            experiment=self.experiment,
            code=self.code,
            store=self.store,
            launcher=self.launcher,
            log=log,
            known_failure=history.known_failure,
        )
        return replace(request, slots=history.slots.count)

    def _launch_until_started(self, order: _Order, make_request: Callable[[], LaunchRequest], logs: LogWriter) -> Exit:
        """Launch the processes and wait for their end. Launch again if they do not start and the policy allows it."""
        history, requested = order.history, order.requested
        run, slots = history.run, history.slots
        slots.begin_run(partial(self._available_slots, make_request))
        start = partial(self._start, order, make_request)
        note_success = partial(self.launches.add_success, run.trial_id)
        needs_change = partial(self._needs_change, history, make_request, logs)
        while True:
            if slots.is_elastic:
                logs.add(None, "det", f"it needs {slots.count} of {self.config.resources.slots_per_trial} slots")
            try:
                ended = self._supervise(order, start, logs, note_success, needs_change)
            except LaunchError as error:
                refused = slots.count
                if not slots.refuse():
                    raise
                logs.add(None, "det", f"not started on {refused} slots: {error}")
                continue
            if ended.cause is not Cause.NOT_STARTED:
                return ended
            needs_change(Phase.QUEUED)  # a launcher without a queue refuses launches instead
            if slots.change() and not requested():
                continue
            history.count_attempt()
            decision = decide(End.NOT_STARTED, history.counts, self._limits, requested=requested() is not None)
            if decision.outcome:
                return ended
            logs.add(None, "det", f"not started yet, trying again: {ended.message}")
            self._delay(run, f"not started ({ended.message}), next attempt", decision.delay, requested)

    def _start(self, order: _Order, make_request: Callable[[], LaunchRequest]) -> Allocation:
        run = order.history.run
        self.store.set_trial_placement(run.trial_id, run.run_id, "", slots=order.history.slots.count)
        return self.launcher.start(prepare_launch(make_request(), order.trial, run, self.stream.shown_config))

    def _needs_change(
        self, history: TrialHistory, make_request: Callable[[], LaunchRequest], logs: LogWriter, phase: Phase
    ) -> bool:
        """Return once whether a launch shall end, because the next one has another number of slots."""
        is_running = phase is Phase.RUNNING
        available = partial(self._available_slots, make_request)
        changes = phase is not Phase.STARTING and history.slots.needs_change(available, is_running=is_running)
        if changes and is_running:
            logs.add(None, "det", "more slots are free: it saves a checkpoint, and continues on more slots")
        return changes

    def _available_slots(self, make_request: Callable[[], LaunchRequest]) -> int | None:
        """Return how many slots are free, 0 if this cannot be found out now, or None if the launcher never knows it."""
        try:
            return self.launcher.available_slots(make_request())
        except TrackingError:
            raise
        except DetError:
            return 0

    def _searcher_metric(self, trial: TrialRecord, run: Run) -> float:
        """Return the metric of the completed searcher operation, else of the latest validation."""
        operation = self.store.searcher_operation(trial.id)
        if operation and operation.metric is not None:
            return operation.metric
        latest = deque(self.store.metrics(trial.id, group="validation"), maxlen=1)
        if not latest:
            return math.nan
        metric, metrics = self.config.searcher.metric, latest[0].metrics
        value = metrics.get(metric)
        if isinstance(value, Real):
            return float(value)
        hint = suggest_metric(metric, metrics, smaller_is_better=self.config.searcher.smaller_is_better)
        self._log(
            trial,
            run,
            f"trial {trial.id}: WARNING: it reported no number as {metric!r}, which is searcher.metric, but "
            f"{', '.join(map(repr, metrics))}{hint}",
        )
        return math.nan

    def _classify(self, ended: Exit, reason: str, history: TrialHistory, start: StartingPoint) -> _RunEnd:
        """Return the end of a run whose processes have ended for the given reason."""
        run = self.store.run(history.run.trial_id, history.run.run_id)
        kind = classify_exit(ended, run, reason=reason, is_command=is_command(self.config.entrypoint))
        if kind in OWN_ENDS:
            return _RunEnd(kind, reason if ended.code else "", ended.cause, ended.code)
        history.end_run()
        if kind in FAILURES and self._was_damaged(start):
            kind = End.DAMAGED
        elif kind is End.FAILED and history.failed_again(ended.code, reason):
            kind = End.FAILED if self.config.restart_repeated_failures else End.REPEATED
        elif kind is End.NO_PROGRAM:
            reason = self._explain_missing_program(ended.code, reason)
        return _RunEnd(kind, reason, ended.cause, ended.code)

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
