"""One trial: launch it, watch it, start it again, until there is an outcome."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

from det_core import events
from det_core.config import ExperimentConfig
from det_core.core import EarlyExitReason
from det_core.errors import LaunchError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Allocation, Launcher, LaunchRequest
from det_core.interfaces.tracking import Checkpoint, Run, State, TrackingStore, Trial
from det_core.launch.local import gpus
from det_core.plugins import emit, registry
from det_core.runner._lease import Lease
from det_core.runner._logs import LogWriter
from det_core.runner._requests import Requests

_TICK = 0.2
_PREEMPTION_TIMEOUT = 600.0
"""Seconds from a request to leave until the trial is killed, unless the config sets preemption_timeout."""


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
            except LaunchError as failure:
                return Ended(Outcome.FAILED, str(failure))
            run = self.store.run(trial.id, run.run_id)
            if code == 0 and run.early_exit:
                invalid = run.early_exit == EarlyExitReason.INVALID_HP.value
                return Ended(Outcome.INVALID_HP if invalid else Outcome.STOPPED)
            if code == 0 and not run.preemption_acknowledged:
                return Ended(Outcome.COMPLETED)
            if code == 0 or self.requests.current:
                continue  # it left on request, and did not fail
            failures = self.store.count_restart(trial.id, lease=self.lease.holder)
            if code == EXIT_DO_NOT_RESTART or failures > self.config.max_restarts:
                return Ended(Outcome.FAILED, error)
        return Ended(Outcome.INTERRUPTED)

    def _launcher(self) -> Launcher:
        block = self.config.launcher
        return cast("Launcher", registry().load(registry().find("launcher", block.type))(block.options))

    def _run_once(self, launcher: Launcher, trial: Trial, run: Run) -> tuple[int, str]:
        latest = self._latest_checkpoint(trial.id)
        logs = LogWriter(self.store, run)
        start = f"checkpoint {latest.uuid} after {latest.steps_completed} batches" if latest else "the beginning"
        logs.add(0, "det", f"run {run.run_id} of trial {trial.id} starts from {start}")
        emit(
            events.TrialStarted(
                experiment_id=trial.experiment_id, trial_id=trial.id, run_id=run.run_id, hparams=trial.hparams
            )
        )
        allocation = launcher.start(self._request(trial, run, latest, logs))
        try:
            code = self._watch(allocation, logs)
        finally:
            allocation.close()
            logs.flush(now=True)
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        logs.add(0, "det", f"run {run.run_id} of trial {trial.id} {how}")
        logs.flush(now=True)
        return code, logs.last_error if code > 0 and logs.last_error else f"the worker {how}"

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
        searcher = self.config.searcher
        own = self.store.checkpoints(trial_id=trial_id)
        if not own and searcher.source_checkpoint_uuid:
            return self.store.checkpoint(searcher.source_checkpoint_uuid)
        if not own and searcher.source_trial_id:
            own = self.store.checkpoints(trial_id=searcher.source_trial_id)
        return own[-1] if own else None

    def _request(self, trial: Trial, run: Run, latest: Checkpoint | None, logs: LogWriter) -> LaunchRequest:
        return LaunchRequest(
            name=f"trial-{trial.id}",
            argv=[sys.executable, "-m", "det_core.launch.worker"],
            cwd=self.context_dir,
            env=self.config.environment.environment_variables.for_device("cuda" if gpus() else "cpu"),
            slots=max(self.config.resources.slots_per_trial, 1),
            log=logs.add,
            info={"cluster.json": self._cluster(trial, run, latest), "trial.json": self._trial(trial, run, latest)},
        )

    def _cluster(self, trial: Trial, run: Run, latest: Checkpoint | None) -> Mapping[str, Any]:
        return {
            "master_url": self.store.url,
            "cluster_id": "local",
            "agent_id": "local",
            "task_id": trial.task_id,
            "allocation_id": run.allocation_id,
            "session_token": "",
            "latest_checkpoint": latest.uuid if latest else None,
        }

    def _trial(self, trial: Trial, run: Run, latest: Checkpoint | None) -> Mapping[str, Any]:
        continues = latest is not None and latest.trial_id == trial.id
        return {
            "trial_id": trial.id,
            "experiment_id": trial.experiment_id,
            "trial_seed": trial.seed,
            "hparams": trial.hparams,
            "config": self.config.dump(),
            "steps_completed": latest.steps_completed if latest and continues else 0,
            "trial_run_id": run.run_id,
        }
