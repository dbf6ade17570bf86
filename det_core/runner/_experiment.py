"""One experiment: what the search method asks for, done."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from numbers import Real
from pathlib import Path

from det_core import events
from det_core.config import parse_config
from det_core.core import open_block
from det_core.errors import DetError, ExperimentBusy, StaleRun
from det_core.interfaces.search_method import Action, Create, SearchMethod, Train
from det_core.interfaces.tracking import REQUESTS, State, TrackingStore, Trial
from det_core.plugins import emit
from det_core.runner._context_dir import unpack
from det_core.runner._lease import Lease
from det_core.runner._requests import Requests
from det_core.runner._trial import Ended, Outcome, TrialRunner
from det_core.search.method import comparable, open_method
from det_core.storage import check
from det_core.tracking.secret_files import fill


class ExperimentRunner:
    """Runs a recorded experiment, or goes on with one whose runner was stopped or killed."""

    def __init__(self, store: TrackingStore, experiment_id: int) -> None:
        self._store = store
        self._experiment = store.experiment(experiment_id)
        if self._experiment.unmanaged:
            raise DetError(f"experiment {experiment_id} was recorded by a script; run that script again instead")
        fill(self._experiment.config)  # a secret that is missing is told before anything starts
        self._config = parse_config(self._experiment.config)
        self._error: str | None = None
        self._requests = Requests(store, experiment_id)

    @property
    def signals(self) -> Sequence[int]:
        """The SIGINTs and SIGTERMs that came while it ran: the first asks it to leave, the second kills."""
        return self._requests.came

    def run(self, tick: Callable[[], None] = lambda: None) -> State:
        """Run to the end, or until somebody asks to leave. Blocks.

        Args:
            tick: called about five times a second from this thread.

        Returns:
            COMPLETED, ERROR, PAUSED (asked to leave; resume goes on) or CANCELED.

        Raises:
            ExperimentBusy: another living runner has the experiment.
        """
        if self._experiment.state is State.COMPLETED:
            return State.COMPLETED
        lease = Lease(self._store, self._experiment.id)
        try:
            self._begin(lease)
            state = self._run(lease, tick)
        except (StaleRun, ExperimentBusy):
            raise  # the experiment is somebody else's now
        except BaseException as error:
            self._error = str(error) or repr(error)
            self._finish(State.ERROR, lease)
            raise
        else:
            self._finish(state, lease)
        finally:
            lease.release()
        tick()
        return state

    def _begin(self, lease: Lease) -> None:
        experiment = self._experiment
        self._store.set_experiment_state(experiment.id, State.ACTIVE, lease=lease.holder)
        resumed = experiment.state is not State.QUEUED
        emit(events.ExperimentStarted(experiment_id=experiment.id, config=experiment.config, resumed=resumed))

    def _finish(self, state: State, lease: Lease) -> None:
        identity = self._experiment.id
        self._store.set_experiment_state(identity, state, lease=lease.holder, error=self._error)
        if state is State.COMPLETED:
            self._store.set_experiment_progress(identity, 1.0, lease=lease.holder)
        emit(events.ExperimentFinished(experiment_id=identity, state=state.value))

    def _run(self, lease: Lease, tick: Callable[[], None]) -> State:
        requests = self._requests
        with tempfile.TemporaryDirectory(prefix="det-context-") as context_dir, requests.signals():
            unpack(self._store.model_definition(self._experiment.id), Path(context_dir))
            self._check_storage()
            runner = TrialRunner(
                store=self._store,
                config=self._config,
                lease=lease,
                requests=requests,
                context_dir=Path(context_dir),
                tick=tick,
            )
            known = {trial.request_id: trial for trial in self._store.trials(self._experiment.id)}
            with open_method(self._config, Path(context_dir)) as method:
                todo = deque(method.start())
                while todo:
                    follow_ups = self._perform(todo.popleft(), method, known, runner)
                    if requests.current:
                        return REQUESTS[requests.current]
                    todo.extend(follow_ups)
        return State.ERROR if self._error else State.COMPLETED

    def _perform(
        self, action: Action, method: SearchMethod, trials: dict[int, Trial], runner: TrialRunner
    ) -> Sequence[Action]:
        """Do what the search method asks for; what it asks for next."""
        if isinstance(action, Create):
            if action.request_id not in trials:
                trials[action.request_id] = self._create(action, runner.lease)
        elif isinstance(action, Train):
            trial = trials[action.request_id]
            return self._after(action, trial, self._train(action, trial, runner), method, runner)
        return []

    def _train(self, action: Train, trial: Trial, runner: TrialRunner) -> Ended:
        if trial.state is State.COMPLETED:
            return Ended(Outcome.COMPLETED)
        if action.length is not None:
            self._store.set_searcher_operation(trial.id, action.length, lease=runner.lease.holder)
        return runner.run(trial)

    def _create(self, action: Create, lease: Lease) -> Trial:
        seed = (self._config.reproducibility.experiment_seed + action.request_id) % 2**32
        return self._store.create_trial(
            self._experiment.id, hparams=action.hparams, seed=seed, request_id=action.request_id, lease=lease.holder
        )

    def _after(
        self, action: Train, trial: Trial, ended: Ended, method: SearchMethod, runner: TrialRunner
    ) -> Sequence[Action]:
        state = State.ERROR if ended.outcome is Outcome.FAILED else State.COMPLETED
        if ended.outcome is Outcome.INTERRUPTED and runner.requests.current:
            state = REQUESTS[runner.requests.current]
        self._store.set_trial_state(trial.id, state, lease=runner.lease.holder)
        if state.final:
            emit(events.TrialFinished(experiment_id=trial.experiment_id, trial_id=trial.id, state=state.value))
        self._error = ended.error or self._error
        if ended.outcome is Outcome.COMPLETED:
            metric = comparable(self._searcher_metric(trial), smaller_is_better=self._config.searcher.smaller_is_better)
            return method.on_validation(action.request_id, action.length, metric)
        if ended.outcome is Outcome.INTERRUPTED:
            return []
        return method.on_exit(action.request_id, ended.outcome.value)

    def _searcher_metric(self, trial: Trial) -> float:
        """What the trial completed its operation with, else its latest validation's; NaN if it reported none."""
        operation = self._store.searcher_operation(trial.id)
        if operation and operation.metric is not None:
            return operation.metric
        metric = self._config.searcher.metric
        values = [report.metrics.get(metric) for report in self._store.metrics(trial.id, group="validation")]
        return float(values[-1]) if values and isinstance(values[-1], Real) else float("nan")

    def _check_storage(self) -> None:
        check(open_block(self._config.dump()["checkpoint_storage"]))
