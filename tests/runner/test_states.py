"""States of experiments and trials under pause, cancel, kill, resume, delete, crashes and lost leases, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from det_testing import campaign_seeds, is_soak
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test, initialize, invariant, precondition, rule

from det_core.config import parse_config
from det_core.errors import ExperimentBusy, RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.records import (
    ENDINGS,
    REQUESTS,
    ExperimentRecord,
    MetricsReport,
    Run,
    State,
    TrialRecord,
    stronger_request,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._recorded_search import RecordedSearch
from det_core.runner._restart_policy import TrainingOutcome
from det_core.runner._search_loop import SearchLoop
from det_core.runner._trial_runner import TrainingResult
from det_core.search.method_selection import open_search_method
from det_core.tracking import control, open_store

from ..postgresql import running_postgresql

SEEDS = campaign_seeds(few=1, many=200)
CONFIG = {
    "name": "states",
    "entrypoint": "model_def:T",
    "searcher": {
        "name": "async_halving",
        "metric": "loss",
        "max_length": 4,
        "max_trials": 4,
        "num_rungs": 2,
        "divisor": 2,
        "max_concurrent_trials": 2,
    },
    "hyperparameters": {"x": {"type": "int", "minval": 0, "maxval": 9}},
    "reproducibility": {"experiment_seed": 7},
}
GONE = (StaleRun, ExperimentBusy, RecordNotFound)
"""Errors of a runner whose experiment belongs to another runner or was deleted."""


class Turn(Exception):
    """Signal that one turn of the loop is over."""


class Training:
    """Substitute for `det_core.runner._trial_pool.TrialPool` that writes what workers and their watchers write."""

    def __init__(self, store: TrackingStore, runner: ExperimentRunner, lease: str) -> None:
        self.asked: dict[int, State] = {}
        self.waiting: dict[int, TrialRecord] = {}
        self.runs: dict[int, Run] = {}
        self.ended: list[tuple[TrialRecord, TrainingResult]] = []
        self._store = store
        self._requests = runner._requests
        self._lease = lease

    def __contains__(self, trial: TrialRecord) -> bool:
        return trial.id in self.waiting

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def full(self) -> bool:
        return len(self) >= 2

    @property
    def training(self) -> list[TrialRecord]:
        return list(self.waiting.values())

    def start(self, trial: TrialRecord) -> None:
        self.waiting[trial.id] = trial

    def wait(self, timeout: float) -> list[tuple[TrialRecord, TrainingResult]]:
        ended, self.ended = self.ended, []
        for trial, _ in ended:
            del self.waiting[trial.id]
        return ended

    def launch(self, trial: TrialRecord) -> None:
        """Do what `TrialRunner.run` does up to the start of the processes."""
        if self.requested(trial):
            self.end(trial, TrainingOutcome.INTERRUPTED)
            return
        self._store.set_trial_state(trial.id, State.ACTIVE, lease=self._lease)
        if self._store.trial(trial.id).state is not State.ACTIVE:
            self.end(trial, TrainingOutcome.INTERRUPTED)
            return
        self.runs[trial.id] = self._store.start_run(trial.id, allocation_id="a", lease=self._lease)

    def end(self, trial: TrialRecord, outcome: TrainingOutcome) -> None:
        self.ended.append((trial, TrainingResult(outcome, metric=float(trial.id))))

    def requested(self, trial: TrialRecord) -> State | None:
        return stronger_request(self._requests.current, self.asked.get(trial.id))


@dataclass
class Runner:
    """Runner that runs step by step, with the real search and loop, and trials that end when the test says so."""

    store: TrackingStore
    experiment_id: int
    holder: str
    alive: bool = True
    loop: SearchLoop | None = None
    training: Training = field(init=False)

    def __post_init__(self) -> None:
        self.real = ExperimentRunner(self.store, self.experiment_id)
        self.training = Training(self.store, self.real, self.holder)

    def take_lease(self) -> None:
        self.store.acquire_lease(self.experiment_id, self.holder, seconds=600, state=State.ACTIVE)

    def renew_lease(self) -> None:
        self.store.renew_lease(self.experiment_id, self.holder, seconds=600)

    def turn(self, *, look: bool) -> State | None:
        """Run one turn of the loop, and return the final state once there is one.

        Args:
            look: whether a second has passed, after which the loop looks for requests.
        """
        try:
            return self._turn(look=look)
        except GONE:
            raise
        except Exception:  # as ExperimentRunner does
            self.real._finish(State.ERROR, self)  # type: ignore[arg-type]
            raise

    def _turn(self, *, look: bool) -> State | None:
        if self.loop is None:
            self._begin()
        assert self.loop
        if look:
            self.loop._poll_at = self.real._requests._poll_at = 0.0

        def tick() -> None:
            raise Turn

        try:
            self.loop.run(tick)
        except Turn:
            return None
        state = self.real._finish(self.real._outcome(self.search, self.loop), self)  # type: ignore[arg-type]
        self.store.release_lease(self.experiment_id, self.holder)
        self.alive = False
        return state

    def _begin(self) -> None:
        self.real._begin()
        config = parse_config(CONFIG)
        with open_search_method(config, Path()) as method:
            self.search = RecordedSearch(self.store, self.experiment_id, method, seed=7, lease=self.holder)
        self.search.begin()
        self.loop = SearchLoop(
            self.store,
            self.experiment_id,
            self.search,
            self.training,  # type: ignore[arg-type]
            self.real._requests,
            FailedLaunches(),
            smaller_is_better=True,
            lease=self.holder,
        )


Record = tuple[ExperimentRecord, list[TrialRecord]]


class States(RuleBasedStateMachine):
    """State machine that checks each change of a state against the promises to users."""

    def __init__(self, store: TrackingStore) -> None:
        super().__init__()
        self.store = store
        self.runners: list[Runner] = []
        self.holder: Runner | None = None
        """Last runner that took the lease, until it gives it back."""
        self.valid = False
        """Whether the lease has not expired."""
        self.asked: State | None = None
        """Strongest request that was accepted since the runner took the lease."""
        self.resumed = False

    @initialize()
    def create(self) -> None:
        self.id = self.store.create_experiment(config=CONFIG).id
        self.before = self.record()

    def record(self) -> Record:
        return self.store.experiment(self.id), list(self.store.trials(self.id))

    def owns(self, runner: Runner) -> bool:
        return runner is self.holder

    def by(self, runner: Runner, act: Callable[[], Any]) -> Any:
        """Let a runner act. A runner that has lost the experiment changes nothing, and ends when it notices."""
        if self.owns(runner):
            return act()
        try:
            act()
        except GONE:
            runner.alive = False
        assert self.record() == self.before, "a runner without the lease changed the store"
        return None

    # Actions of users

    @precondition(lambda self: self.runners)
    @rule(state=st.sampled_from(list(REQUESTS)))
    def ask(self, state: State) -> None:
        before = self.before[0]
        try:
            after = control.request_experiment_stop(self.store, self.id, state)
        except TrackingError:
            assert not self.valid or before.state.final
            assert self.record() == self.before
            return
        assert self.valid and not before.state.final
        assert after.state is stronger_request(before.state, state)
        self.asked = stronger_request(self.asked, state)

    @precondition(lambda self: self.before[1])
    @rule(index=st.integers(0, 3))
    def kill_trial(self, index: int) -> None:
        trials = self.before[1]
        trial = trials[index % len(trials)]
        try:
            after = control.request_trial_kill(self.store, trial.id)
        except TrackingError:
            assert not self.valid or trial.state.final
            assert self.record() == self.before
            return
        assert self.valid and not trial.state.final
        assert after.state is State.STOPPING_KILLED

    @precondition(lambda self: self.before[1])
    @rule()
    def delete(self) -> None:
        holder = "deleting:1:1:1"
        try:
            self.store.acquire_lease(self.id, holder, seconds=600)
        except ExperimentBusy:
            assert self.valid
            with pytest.raises(ExperimentBusy, match="is being run by"):
                self.store.delete_experiment(self.id)
            assert self.record() == self.before
            return
        assert not self.valid
        self.store.delete_experiment(self.id, lease=holder)
        for runner in self.runners:
            if runner.alive:
                with pytest.raises(RecordNotFound):
                    runner.turn(look=True)
        for trial in self.before[1]:
            with pytest.raises(RecordNotFound):
                self.store.trial(trial.id)
        self.runners.clear()
        self.holder, self.valid, self.asked, self.resumed = None, False, None, False
        self.create()

    # Ends and restarts of runners

    @precondition(lambda self: self.before[0].state is not State.COMPLETED)
    @rule()
    def resume(self) -> None:
        runner = Runner(self.store, self.id, f"host:1:1:{len(self.runners)}")
        if self.holder and self.valid and not self.holder.alive:  # as Lease does
            self.store.release_lease(self.id, self.holder.holder)
            self.valid = False
        try:
            runner.take_lease()
        except ExperimentBusy:
            assert self.valid
            return
        assert not self.valid
        self.runners.append(runner)
        self.holder, self.valid, self.asked, self.resumed = runner, True, None, True

    @precondition(lambda self: self.holder and self.valid)
    @rule()
    def lease_runs_out(self) -> None:
        assert self.holder
        self.store.renew_lease(self.id, self.holder.holder, seconds=-1)
        self.valid = False

    @precondition(lambda self: any(runner.alive for runner in self.runners))
    @rule(runner=st.integers(0, 9))
    def renew(self, runner: int) -> None:
        one = self.living(runner)
        self.by(one, one.renew_lease)
        if self.owns(one):
            self.valid = True

    @precondition(lambda self: any(runner.alive for runner in self.runners))
    @rule(runner=st.integers(0, 9))
    def crash(self, runner: int) -> None:
        self.living(runner).alive = False

    @precondition(lambda self: any(runner.alive for runner in self.runners))
    @rule(runner=st.integers(0, 9), look=st.booleans())
    def turn(self, runner: int, look: bool) -> None:
        one = self.living(runner)
        last = self.by(one, lambda: one.turn(look=look))
        if last is None:
            return
        state = self.record()[0].state
        assert state is last
        assert state is not State.PAUSED or self.asked not in ENDINGS, f"asked for {self.asked}, it paused"
        self.holder, self.valid, self.asked = None, False, None

    # Events of trials

    @precondition(lambda self: any(runner.alive and runner.training.waiting for runner in self.runners))
    @rule(runner=st.integers(0, 9), index=st.integers(0, 1), end=st.sampled_from([None, *TrainingOutcome]))
    def train(self, runner: int, index: int, end: TrainingOutcome | None) -> None:
        """Start a trial, or let a running one report and end."""
        one = self.living(runner)
        training = one.training
        idle = [trial for trial in training.waiting.values() if all(trial is not other for other, _ in training.ended)]
        if not idle:
            return
        trial = idle[index % len(idle)]
        if trial.id not in training.runs:
            self.by(one, lambda: training.launch(trial))
            return
        self.report(training.runs[trial.id])
        if end is not None and (end is not TrainingOutcome.INTERRUPTED or training.requested(trial)):
            training.end(trial, end)
            del training.runs[trial.id]

    def report(self, run: Run) -> None:
        newest = self.store.trial(run.trial_id).run_id
        report = MetricsReport(
            trial_id=run.trial_id, run_id=run.run_id, group="training", steps_completed=1, metrics={"loss": 1.0}
        )
        if run.run_id == newest:
            self.store.report_metrics([report])
        else:
            with pytest.raises(StaleRun):
                self.store.report_metrics([report])

    def living(self, index: int) -> Runner:
        living = [runner for runner in self.runners if runner.alive]
        return living[index % len(living)]

    # Promises that hold after each step

    @invariant()
    def promises(self) -> None:
        experiment, trials = self.record()
        before, trials_before = self.before
        assert self.store.lease_holder(self.id) == (self.holder.holder if self.holder and self.valid else None)
        if before.state.final and before.id == experiment.id and not self.resumed:
            assert experiment.state is before.state, "an end was undone"
        assert (experiment.end_time is not None) is experiment.state.final
        if self.asked:
            assert stronger_request(experiment.state, self.asked) is experiment.state, "a request was lost"
        for trial in trials:
            assert (trial.end_time is not None) is trial.state.final
        for old, new in zip(trials_before, trials, strict=False):
            if old.id != new.id:  # the experiment was deleted
                break
            waits = old.ordered is not None and self.holder is not None  # canceled, then resumed
            if old.state is State.COMPLETED or (old.state.final and not (waits or self.resumed)):
                assert new.state is old.state, "the end of a trial was undone"
            if old.state in ENDINGS:
                assert new.state in ENDINGS or new.state.final, "a request to end a trial was lost"
            assert new.run_id >= old.run_id
        idle = not self.valid
        assert (control.settled_experiment(self.store, self.id) is not None) is (idle or experiment.state.final)
        self.before = experiment, trials
        if self.holder is None or self.holder.loop is not None or not self.holder.alive:
            self.resumed = False


def play(url: str, seed: int, *, examples: int) -> None:
    """Play a number of random games. A failure prints its steps."""
    options = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # shrinking a failure takes minutes: add Phase.shrink to wait for it
        suppress_health_check=list(HealthCheck),
    )
    with open_store(url) as store:
        hypothesis.seed(seed)(get_state_machine_test(lambda: States(store), settings=options))()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/det.db"
        return
    with running_postgresql() as server:
        yield server.create_database()


@pytest.mark.integration
def test_the_state_machine_holds_for_events_in_any_order(tmp_path: Path) -> None:
    play(f"sqlite:///{tmp_path}/det.db", 1, examples=10)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_the_state_machine_holds_for_long_games(url: str, seed: int) -> None:
    play(url, seed, examples=60 if is_soak() else 10)
