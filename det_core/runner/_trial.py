"""One trial: launch it, watch it, start it again, until there is an outcome."""

from __future__ import annotations

import shlex
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from det_core import events
from det_core.config import ExperimentConfig, LauncherConfig, is_command
from det_core.core import EarlyExitReason
from det_core.errors import InvalidExperimentException, LaunchError, PluginError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Allocation, Launcher
from det_core.interfaces.tracking import Checkpoint, Run, State, TrackingStore, Trial
from det_core.launch._verdict import REASON
from det_core.plugins import emit, registry
from det_core.runner._launch_request import launch_request
from det_core.runner._lease import Lease
from det_core.runner._logs import LogWriter
from det_core.runner._requests import Requests
from det_core.runner._warm_start import source_checkpoint
from det_core.tracking.secret_files import fill

_TICK = 0.2
_PREEMPTION_TIMEOUT = 600.0
"""Seconds from a request to leave until the trial is killed, unless the config sets preemption_timeout."""
_NOT_STARTED = (126, 127)
"""Exit codes of a shell, and of our launcher, whose command could not be started."""


class Outcome(Enum):
    """How a trial ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    INVALID_HP = "invalid_hp"
    FAILED = "error"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Ended:
    """A trial's outcome, with the reason when it failed."""

    outcome: Outcome
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRunner:
    """Runs the trials of one experiment, one at a time."""

    store: TrackingStore
    config: ExperimentConfig
    lease: Lease
    requests: Requests
    context_dir: Path
    tick: Callable[[], None]

    def run(self, trial: Trial) -> Ended:
        """Start the trial from its latest checkpoint, again and again up to max_restarts."""
        launcher = self._launcher()
        failures = trial.restarts
        while not self.requests.poll():
            self.store.set_trial_state(trial.id, State.ACTIVE, lease=self.lease.holder)
            run = self.store.start_run(trial.id, allocation_id=str(uuid.uuid4()), lease=self.lease.holder)
            try:
                code, error = self._run_once(launcher, trial, run)
            except (LaunchError, PluginError, InvalidExperimentException) as failure:
                return Ended(Outcome.FAILED, str(failure))
            run = self.store.run(trial.id, run.run_id)
            if run.early_exit == EarlyExitReason.INVALID_HP.value:  # workers that waited for that one may have failed
                return Ended(Outcome.INVALID_HP)
            if code == 0 and run.early_exit:
                return Ended(Outcome.STOPPED)
            if code == 0 and self._is_done(run):
                return Ended(Outcome.COMPLETED)
            if code == 0 or self.requests.current:
                continue  # it left on request, and did not fail
            failures = self.store.count_restart(trial.id, lease=self.lease.holder)
            if is_command(self.config.entrypoint) and code in _NOT_STARTED:
                return Ended(Outcome.FAILED, self._not_started(code, error))
            if code == EXIT_DO_NOT_RESTART or failures > self.config.max_restarts:
                return Ended(Outcome.FAILED, error)
        return Ended(Outcome.INTERRUPTED)

    def _is_done(self, run: Run) -> bool:
        """Whether nothing is left to do for a run that exited with 0."""
        operation = self.store.searcher_operation(run.trial_id)
        # A script whose operations are all completed acknowledges too, so that more of them would start it again.
        out_of_operations = operation is not None and operation.completed and not self.requests.current
        return out_of_operations or not run.preemption_acknowledged

    def _not_started(self, code: int, error: str) -> str:
        entrypoint = self.config.entrypoint
        command = shlex.join(entrypoint) if isinstance(entrypoint, tuple) else entrypoint
        return (
            f"the entrypoint {command!r} could not be started (exit code {code}: {error}); programs are looked for in "
            f"{Path(sys.executable).parent} and on PATH, files in the context directory; "
            "a trial class is written as module:Class"
        )

    def _launcher(self) -> Launcher:
        block = LauncherConfig.model_validate(fill(self.config.dump()["launcher"]))
        return cast("Launcher", registry().load(registry().find("launcher", block.type))(block.options))

    def _run_once(self, launcher: Launcher, trial: Trial, run: Run) -> tuple[int, str]:
        latest = self._latest_checkpoint(trial.id)
        logs = LogWriter(self.store, run)
        reasons: list[str] = []

        def log(rank: int | None, stdtype: str, text: str) -> None:
            if text.startswith(REASON):
                reasons.append(text.removeprefix(REASON))
            logs.add(rank, stdtype, text)

        start = f"checkpoint {latest.uuid} after {latest.steps_completed} batches" if latest else "the beginning"
        logs.add(None, "det", f"run {run.run_id} of trial {trial.id} starts from {start}")
        emit(
            events.TrialStarted(
                experiment_id=trial.experiment_id, trial_id=trial.id, run_id=run.run_id, hparams=trial.hparams
            )
        )
        allocation = launcher.start(
            launch_request(
                self.config,
                trial,
                run,
                latest,
                store=self.store,
                context_dir=self.context_dir,
                log=log,
            )
        )
        try:
            code = self._watch(allocation, logs)
        finally:
            allocation.close()
            logs.flush(now=True)
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        logs.add(None, "det", f"run {run.run_id} of trial {trial.id} {how}")
        logs.flush(now=True)
        told = [*reasons, logs.error] if code > 0 else []
        return code, next(filter(None, told), f"the worker {how}")

    def _watch(self, allocation: Allocation, logs: LogWriter) -> int:
        """Wait for the end, passing on requests to leave."""
        kill_at: float | None = None
        while (code := allocation.wait(_TICK)) is None:
            self.lease.renew()
            logs.flush()
            self.tick()
            request = self.requests.poll()
            if request and kill_at is None:
                timeout = self.config.preemption_timeout
                kill_at = time.monotonic() + (_PREEMPTION_TIMEOUT if timeout is None else timeout)
                allocation.preempt()
            if request is State.STOPPING_KILLED or (kill_at and time.monotonic() > kill_at):
                allocation.kill()
        return code

    def _latest_checkpoint(self, trial_id: int) -> Checkpoint | None:
        own = self.store.checkpoints(trial_id=trial_id)
        return own[-1] if own else source_checkpoint(self.store, self.config.searcher)
