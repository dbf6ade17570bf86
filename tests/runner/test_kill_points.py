"""An experiment whose runner is killed after each of its writes, and resumed, without any process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from det_core.core import EarlyExitReason
from det_core.interfaces.launcher import Exit, LaunchRequest, Phase, Status
from det_core.interfaces.records import MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, _experiment_runner

from .conftest import Submit
from .played_launcher import FAILURE, SUCCESS, PlayedAllocation, PlayedLauncher, run_ids, save_checkpoint

SEARCH = {
    "searcher": {"name": "random", "metric": "loss", "max_trials": 3, "max_length": {"batches": 10}},
    "hyperparameters": {"x": {"type": "int", "minval": 0, "maxval": 9}},
    "max_restarts": 1,
}
COMPLETES, STOPS, FAILS_ONCE = range(3)


class Killed(BaseException):
    """End of the runner."""


class StoreOfOneLife:
    """Tracking store that a runner uses until its end.

    Args:
        store: the store that executes the calls.
        writes: number of writes after which the runner ends. The lines of logs, which a thread writes, do not count.
    """

    def __init__(self, store: TrackingStore, writes: Iterator[int]) -> None:
        self._store = store
        self._writes = writes
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        return member if isinstance(member, str) else lambda *args, **options: self._call(name, *args, **options)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        if name == "add_logs":
            return None
        if not self._is_over:
            answer = getattr(self._store, name)(*args, **options)
            self._is_over = getattr(TrackingStore, name).rights.writes and next(self._writes, None) is None
        if self._is_over:
            raise Killed
        return answer


class Trials:
    """Launcher of the trials of one experiment, each of which ends in another way.

    Args:
        store: the tracking store of the workers.
    """

    def __init__(self, store: TrackingStore) -> None:
        self.launches: Counter[int] = Counter()
        self.launcher = PlayedLauncher(*[self._work] * 9)
        self.launcher.slots = 1
        self._store = store

    def _work(self, request: LaunchRequest) -> Exit:
        store, ids = self._store, run_ids(request)
        trial = store.trial(ids["trial_id"]).request_id
        self.launches[trial] += 1
        if trial == STOPS:
            store.report_early_exit(**ids, reason=EarlyExitReason.USER_REQUESTED_STOP.value)
        elif trial == FAILS_ONCE and self.launches[trial] == 1:
            return FAILURE
        else:
            if not store.checkpoints(trial_id=ids["trial_id"]):
                save_checkpoint(store, request, 10)
            loss = {"loss": 1.0}
            store.report_metrics([MetricsReport(**ids, group="validation", steps_completed=10, metrics=loss)])
        if trial == COMPLETES:
            store.complete_searcher_operation(**ids, length=10, metric=1)
        return SUCCESS


def run_twice(store: TrackingStore, experiment: int, writes: int) -> bool:
    """Run an experiment, whose runner ends after some writes, to its end, and return whether the runner ended."""
    try:
        ExperimentRunner(StoreOfOneLife(store, iter(range(writes))), experiment).run()  # type: ignore[arg-type]
    except Killed:
        if holder := store.lease_holder(experiment):
            store.release_lease(experiment, holder)
        assert ExperimentRunner(store, experiment).run() is State.COMPLETED
        return True
    return False


@pytest.mark.integration
def test_a_runner_may_be_killed_after_any_write(
    store: TrackingStore, new_experiment: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial does its work once, and all records agree."""
    monkeypatch.setattr(PlayedAllocation, "status", lambda self: Status(phase=Phase.RUNNING, nodes=["n1"]))
    monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: trials.launcher)
    writes, is_killed = -1, True
    while is_killed:
        writes, trials, experiment = writes + 1, Trials(store), new_experiment(**SEARCH)
        is_killed = run_twice(store, experiment.id, writes)
        assert (trials.launches[COMPLETES], trials.launches[STOPS]) == (1, 1), f"after {writes} writes"
        assert store.experiment(experiment.id).progress == 1
        for trial in store.trials(experiment.id):
            assert (trial.state, trial.ordered, trial.placement) == (State.COMPLETED, None, "")
            assert all(run.end_time for run in store.runs(trial.id))
        events = [event.event[:2] for event in store.search_events(experiment.id)[1:]]
        assert events == [["on_validation", COMPLETES], ["on_exit", STOPS], ["on_validation", FAILS_ONCE]]
    assert writes > 20
