"""Decisions of the search loop on trials that end as the test says, without any process."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from det_core.errors import StoreBusy
from det_core.interfaces.records import MetricsReport, State, TrialRecord
from det_core.interfaces.search_method import WORST, Action, Close, Create, Train
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _restart_policy, _search_loop, _stop_requests
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._recorded_search import RecordedSearch
from det_core.runner._restart_policy import LIMITS, Count, TrainingOutcome
from det_core.runner._search_loop import SearchLoop
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_pool import TrialPool
from det_core.runner._trial_runner import TrainingResult

from ..waiting import wait_for
from .test_recorded_search import Reporting, Scripted, report_validation

COMPLETED = TrainingResult(TrainingOutcome.COMPLETED, metric=0.5)
BROKEN = TrainingResult(TrainingOutcome.FAILED, error="broken", trained=False)
POSTPONED = TrainingResult(TrainingOutcome.POSTPONED, error="no slots")


End = TrainingResult | None
"""Result of a trial, or None if it trains on when it is waited for."""


class PlayedPool:
    """Substitute for `det_core.runner._trial_pool.TrialPool`, in which one trial after another ends as given.

    Args:
        places: maximum number of trials at once.
        ends: what trials do, one after the other, by request id. The last one counts for ever.
        launches: the failed launches of the search.
    """

    def __init__(self, places: int, ends: Mapping[int, list[End]], launches: FailedLaunches) -> None:
        self.asked: dict[int, State] = {}
        self.started: list[int] = []
        """Request ids of the trials that were started, in order."""
        self.most = 0
        self.before_wait: Callable[[], object] = lambda: None
        self._places, self._ends, self._launches = places, ends, launches
        self._training: list[TrialRecord] = []

    def __contains__(self, trial: TrialRecord) -> bool:
        return any(one.id == trial.id for one in self._training)

    def __len__(self) -> int:
        return len(self._training)

    @property
    def full(self) -> bool:
        return len(self) >= self._places

    @property
    def training(self) -> list[TrialRecord]:
        return list(self._training)

    def start(self, trial: TrialRecord) -> None:
        self.started.append(trial.request_id)
        self._training.append(trial)
        self.most = max(self.most, len(self))

    def wait(self, timeout: float) -> list[tuple[TrialRecord, TrainingResult]]:
        self.before_wait()
        if not self._training:
            return []
        trial = self._training.pop(0)
        ends = self._ends.get(trial.request_id, [COMPLETED])
        end = ends.pop(0) if len(ends) > 1 else ends[0]
        if end is None:
            self._training.append(trial)
            return []
        if end.outcome is not TrainingOutcome.POSTPONED:
            self._launches.add_success(trial.id)
        return [(trial, end)]


class Search:
    """Search of trials that train once, and its loop."""

    def __init__(
        self,
        store: TrackingStore,
        trials: int = 4,
        places: int = 1,
        *,
        answers: Sequence[Sequence[Action]] | None = None,
        smaller_is_better: bool = True,
        method: type[Scripted] = Scripted,
        **ends: TrainingResult | list[End],
    ) -> None:
        self.store = store
        self.id = store.create_experiment(config={"name": "search"}).id
        store.acquire_lease(self.id, "test", seconds=600, state=State.ACTIVE)
        if answers is None:
            first = [action for number in range(trials) for action in (Create(number, {}), Train(number, 4))]
            answers = [first, *[[] for _ in range(trials)]]
        self.method = method(*answers)
        self.ended: list[TrialRecord] = []
        recorded = RecordedSearch(store, self.id, self.method, seed=7, lease="test", ended=self.ended.append)
        recorded.begin()
        self.launches = FailedLaunches()
        played = {
            int(name.removeprefix("trial_")): [end] if isinstance(end, TrainingResult) else end
            for name, end in ends.items()
        }
        self.pool = PlayedPool(places, played, self.launches)
        self.requests = StopRequests(store, self.id)
        self.loop = SearchLoop(
            store,
            self.id,
            recorded,
            self.pool,  # type: ignore[arg-type]
            self.requests,
            self.launches,
            smaller_is_better=smaller_is_better,
            lease="test",
            ended=self.ended.append,
        )

    def run(self) -> None:
        turns = iter(range(100))
        self.loop.run(lambda: next(turns))  # fails if the loop does not end

    @property
    def trials(self) -> list[TrialRecord]:
        return self.store.trials(self.id)

    @property
    def states(self) -> list[State]:
        return [trial.state for trial in self.trials]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop look at the store in each turn."""
    monkeypatch.setattr(_search_loop, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(_stop_requests, "_POLL_EVERY", 0.0)
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 0.0)


@pytest.mark.parametrize("places", [1, 3])
def test_trials_start_in_order_while_there_are_places(store: TrackingStore, places: int) -> None:
    search = Search(store, 4, places)
    search.run()
    assert (search.pool.started, search.pool.most) == ([0, 1, 2, 3], places)
    assert search.method.events[1:] == [("on_validation", number, 4, 0.5) for number in range(4)]
    assert (search.loop.error, search.loop.hopeless, search.loop.postponed) == (None, None, None)


@pytest.mark.parametrize(
    ("metric", "smaller_is_better", "reported"), [(0.25, True, 0.25), (0.25, False, -0.25), (math.nan, True, WORST)]
)
def test_the_search_receives_a_metric_to_minimize(
    store: TrackingStore, metric: float, smaller_is_better: bool, reported: float
) -> None:
    end = TrainingResult(TrainingOutcome.COMPLETED, metric=metric)
    search = Search(store, 1, smaller_is_better=smaller_is_better, trial_0=end)
    search.run()
    assert search.method.events[1:] == [("on_validation", 0, 4, reported)]


def test_the_search_receives_how_trials_ended(store: TrackingStore) -> None:
    ends = {
        "trial_0": TrainingResult(TrainingOutcome.INVALID_HP),
        "trial_1": TrainingResult(TrainingOutcome.STOPPED),
        "trial_2": TrainingResult(TrainingOutcome.FAILED, error="first"),
        "trial_3": TrainingResult(TrainingOutcome.FAILED, error="second"),
    }
    search = Search(store, 5, **ends)
    search.run()
    assert search.method.events[1:] == [
        ("on_exit", 0, "invalid_hp"),
        ("on_exit", 1, "stopped"),
        ("on_exit", 2, "error"),
        ("on_exit", 3, "error"),
        ("on_validation", 4, 4, 0.5),
    ]
    assert search.states[:4] == [State.COMPLETED, State.COMPLETED, State.ERROR, State.ERROR]
    failed = [trial.id for trial in search.trials[2:4]]
    assert (search.loop.error, search.loop.errors) == ("first", dict(zip(failed, ("first", "second"), strict=True)))


def test_trials_that_the_search_adds_or_continues_are_started(store: TrackingStore) -> None:
    answers = [
        [Create(0, {}), Train(0, 4)],
        [Train(0, 8), Create(1, {}), Train(1, 4)],
        [Close(0)],
        [Close(1)],
    ]
    search = Search(store, answers=answers)
    search.run()
    assert search.pool.started == [0, 0, 1]
    assert [event[1:3] for event in search.method.events[1:]] == [(0, 4), (0, 8), (1, 4)]
    assert search.states == [State.COMPLETED] * 2


def test_two_equal_failures_before_training_end_a_search(store: TrackingStore) -> None:
    search = Search(store, 4, trial_0=BROKEN, trial_1=BROKEN)
    search.run()
    assert search.pool.started == [0, 1]
    assert search.loop.hopeless == "broken (2 trials failed like this before training, and none trained)"
    assert search.states == [State.ERROR, State.ERROR, State.CANCELED, State.CANCELED]


@pytest.mark.parametrize(
    "ends",
    [
        {"trial_0": BROKEN, "trial_1": TrainingResult(TrainingOutcome.FAILED, error="other", trained=False)},
        {"trial_0": BROKEN, "trial_1": TrainingResult(TrainingOutcome.FAILED, error="broken", trained=True)},
        {"trial_1": BROKEN, "trial_2": BROKEN},
        dict.fromkeys(("trial_0", "trial_1"), TrainingResult(TrainingOutcome.FAILED, error="timed out", trained=False)),
    ],
    ids=["different", "trained", "others completed", "may pass"],
)
def test_other_failures_do_not_end_a_search(store: TrackingStore, ends: dict[str, TrainingResult]) -> None:
    search = Search(store, 4, **ends)
    search.run()
    assert search.pool.started == [0, 1, 2, 3]
    assert search.loop.hopeless is None


def test_equal_failures_do_not_end_a_search_in_which_a_trial_trains(store: TrackingStore) -> None:
    search = Search(store, 5, 3, trial_0=BROKEN, trial_1=BROKEN, trial_3=BROKEN, trial_4=BROKEN)
    (trial,) = [one for one in search.trials if one.request_id == 2]
    run = store.start_run(trial.id, allocation_id="a")
    report = MetricsReport(
        trial_id=trial.id, run_id=run.run_id, group="training", steps_completed=1, metrics={"loss": 1.0}
    )
    store.report_metrics([report])
    search.run()
    assert search.pool.started == [0, 1, 2, 3, 4]


def test_the_search_waits_after_two_launches_that_failed(store: TrackingStore) -> None:
    search = Search(store, 4, trial_0=POSTPONED, trial_1=POSTPONED)
    search.run()
    assert search.pool.started == [0, 1]
    assert (search.loop.postponed, search.loop.hopeless, search.loop.error) == ("no slots", None, None)
    assert search.states[:2] == [State.PAUSED] * 2
    assert search.method.events == [("start",)]


def test_launches_that_failed_are_tried_again_after_those_of_other_trials(store: TrackingStore) -> None:
    later = [POSTPONED, COMPLETED]
    search = Search(store, 6, trial_0=list(later), trial_2=list(later), trial_3=list(later))
    search.run()
    assert search.pool.started == [0, 1, 2, 3]  # two in a row
    assert (search.loop.postponed, search.states[2:]) == ("no slots", [State.PAUSED] * 2 + [State.QUEUED] * 2)
    other = Search(store, 6, trial_0=list(later), trial_2=list(later), trial_4=list(later))
    other.run()
    assert other.pool.started == [0, 1, 2, 3, 4, 5, 0, 2, 4]
    assert (other.loop.postponed, len(other.method.events)) == (None, 7)


def test_launches_that_failed_are_tried_again_while_a_trial_trains(store: TrackingStore) -> None:
    search = Search(store, 3, 2, trial_0=[POSTPONED, COMPLETED], trial_1=[None] * 4, trial_2=[POSTPONED, COMPLETED])
    search.pool._ends[1].append(COMPLETED)  # type: ignore[attr-defined]
    search.run()
    assert search.pool.started == [0, 1, 2, 0, 2]
    assert (search.loop.postponed, len(search.method.events)) == (None, 4)


def test_no_trial_starts_soon_after_a_launch_that_failed(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 300.0)
    search = Search(store, 3, 2, trial_0=[POSTPONED, COMPLETED], trial_1=[None, None, None, COMPLETED])
    started: list[list[int]] = []
    search.pool.before_wait = lambda: started.append(list(search.pool.started))
    search.run()
    assert started == [[0, 1]] * 5 + [[0, 1, 2, 0]] * 2  # the end of trial 1 shows that launches succeed


def test_a_trial_that_cannot_be_launched_leaves_its_place_to_others(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, Count.PASSED_OVER, 2)
    train = [[Create(number, {}), Train(number, 4)] for number in range(5)]
    search = Search(store, answers=[[*train[0], *train[1]], train[2], train[3], [], train[4], []], trial_0=POSTPONED)
    search.run()
    assert search.pool.started == [0, 1, 0, 2, 0, 3, 0, 4]
    assert search.method.events[3:] == [
        ("on_validation", 3, 4, 0.5),
        ("on_exit", 0, "error"),
        ("on_validation", 4, 4, 0.5),
    ]
    error = "no slots; it could not be launched, and 3 times launches of other trials succeeded in between"
    assert (search.states[0], search.loop.error, search.loop.postponed) == (State.ERROR, error, None)


def test_a_trial_without_a_thread_is_postponed(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (trial, _) = Search(store, 2).trials
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with TrialPool(lambda *_: COMPLETED, StopRequests(store, 1), 1) as pool:
        pool.start(trial)
        ((ended, result),) = pool.wait(0)
    assert (ended, result.outcome, result.error) == (
        trial, TrainingOutcome.POSTPONED, "it cannot have a thread: can't start new thread",
    )  # fmt: skip
    assert len(pool) == 0


def test_the_results_of_trials_count_that_end_together_with_an_error(store: TrackingStore) -> None:
    """Or trials that have ended would train again once the search is resumed."""
    trials = Search(store, 4).trials

    def train(trial: TrialRecord, requested: object) -> TrainingResult:
        if trial == trials[1]:
            raise StoreBusy("locked")
        return COMPLETED

    ended = []
    with pytest.raises(StoreBusy), TrialPool(train, StopRequests(store, 1), 4) as pool:
        for trial in trials:
            pool.start(trial)
        wait_for(lambda: all(future.done() for future in pool._training))
        ended = pool.wait(0)
        pool.wait(0)
    assert ended == [(trial, COMPLETED) for trial in trials if trial != trials[1]]


def test_a_canceled_launch_pauses_its_trial_only(store: TrackingStore) -> None:
    paused = TrainingResult(TrainingOutcome.PAUSED, error="canceled")
    search = Search(store, 4, trial_0=paused, trial_1=paused, trial_2=POSTPONED)
    search.run()
    assert search.pool.started == [0, 1, 2, 3, 2]
    assert search.loop.postponed == "canceled"
    assert search.states[:3] == [State.PAUSED] * 3
    assert search.method.events[1:] == [("on_validation", 3, 4, 0.5)]


@pytest.mark.parametrize(
    ("request_", "states"),
    [
        (State.PAUSED, [State.PAUSED, State.QUEUED]),
        (State.STOPPING_CANCELED, [State.CANCELED] * 2),
        (State.STOPPING_KILLED, [State.CANCELED] * 2),
    ],
)
def test_a_request_ends_the_loop(store: TrackingStore, request_: State, states: list[State]) -> None:
    search = Search(store, 3, 2, trial_1=TrainingResult(TrainingOutcome.INTERRUPTED))
    search.pool.before_wait = lambda: store.set_experiment_state(search.id, request_)
    search.run()
    assert search.pool.started == [0, 1]
    assert search.method.events[1:] == [("on_validation", 0, 4, 0.5)]
    assert search.states[1:] == states
    assert [trial.request_id for trial in search.ended] == [1, 2][: states.count(State.CANCELED)]


def test_a_trial_that_is_killed_while_it_waits_is_not_started(store: TrackingStore) -> None:
    search = Search(store, 3)
    store.set_trial_state(search.trials[1].id, State.STOPPING_KILLED)
    search.run()
    assert search.pool.started == [0, 2]
    assert ("on_exit", 1, "error") in search.method.events
    assert search.states[1] is State.CANCELED


def test_a_trial_that_is_killed_while_it_is_postponed_pauses_nothing(store: TrackingStore) -> None:
    search = Search(store, 2, 2, trial_0=POSTPONED, trial_1=[None, COMPLETED])
    first = search.trials[0].id

    def kill() -> None:
        if search.states[0] is State.PAUSED:
            store.set_trial_state(first, State.STOPPING_KILLED)

    search.pool.before_wait = kill
    search.run()
    assert (search.states[0], search.loop.postponed) == (State.CANCELED, None)


def test_a_trial_that_is_killed_while_it_trains_is_canceled(store: TrackingStore) -> None:
    search = Search(store, 2, trial_0=TrainingResult(TrainingOutcome.INTERRUPTED))
    first = search.trials[0].id
    search.pool.before_wait = lambda: (
        store.set_trial_state(first, State.STOPPING_KILLED) if search.pool.started == [0] else None
    )
    search.run()
    assert search.method.events[1:] == [("on_exit", 0, "error"), ("on_validation", 1, 4, 0.5)]
    assert search.states[0] is State.CANCELED


@pytest.mark.parametrize("outcome", [TrainingOutcome.INTERRUPTED, TrainingOutcome.COMPLETED, TrainingOutcome.FAILED])
def test_a_search_closes_a_trial_that_trains(store: TrackingStore, outcome: TrainingOutcome) -> None:
    end = TrainingResult(outcome, metric=0.5, error="broken" if outcome is TrainingOutcome.FAILED else None)
    first = [action for number in range(3) for action in (Create(number, {}), Train(number, 4))]
    answers = [first, [Close(0), Close(2)], [], [], []]
    search = Search(
        store, places=2, method=Reporting, answers=answers, trial_0=[None, None, end], trial_1=[None, COMPLETED]
    )
    requests: list[State | None] = []

    def wait() -> None:
        if search.pool.started == [0, 1] and not search.trials[0].run_id:
            report_validation(store, search.trials[0], 2, loss=0.9, cost=3.0)
        requests.append(search.pool.asked.get(search.trials[0].id))

    search.pool.before_wait = wait
    search.run()
    failed = outcome is TrainingOutcome.FAILED
    assert search.method.events[1] == ("on_report", 0, 2, {"loss": 0.9, "cost": 3.0})
    assert sorted(search.method.events[2:]) == [
        ("on_exit", 0, "error" if failed else "stopped"),
        ("on_exit", 2, "stopped"),
        ("on_validation", 1, 4, 0.5),
    ]
    assert State.STOPPING_CANCELED in requests
    assert search.states == [State.ERROR if failed else State.COMPLETED, State.PAUSED, State.COMPLETED]
    assert search.pool.started == [0, 1]


def test_the_progress_is_recorded(store: TrackingStore) -> None:
    search = Search(store, 2)
    search.method.share = 0.25
    search.run()
    assert store.experiment(search.id).progress == 0.25
