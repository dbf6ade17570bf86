"""Recorded searches, without any process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from det_core.errors import DetError, StaleRun, TrackingError
from det_core.interfaces.records import MetricsReport, SearchEvent, State, TrialRecord
from det_core.interfaces.search_method import INVALID_HP, Action, Close, Create, SearchMethod, Train
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._recorded_search import RecordedSearch, TrialReport

HPARAMS = {"lr": 0.1}
FIRST = [Create(0, HPARAMS), Train(0, 4), Create(1, HPARAMS), Train(1, 4)]


class Scripted(SearchMethod):
    """Search method that answers its events with the given answers in order."""

    def __init__(self, *answers: Sequence[Action]) -> None:
        self.answers = answers
        self.events: list[tuple[Any, ...]] = []
        self.share = 0.0

    def _next(self, *event: Any) -> Sequence[Action]:
        self.events.append(event)
        return self.answers[len(self.events) - 1]

    def start(self) -> Sequence[Action]:
        return self._next("start")

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return self._next("on_validation", request_id, length, metric)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return self._next("on_exit", request_id, reason)

    def progress(self, lengths: Any) -> float:
        self.lengths = dict(lengths)
        return self.share

    def state(self) -> Any:
        return len(self.events)

    def restore(self, state: Any) -> None:
        self.events = [("restored",)] * state


class Reporting(Scripted):
    """Search method that also gets the reports of its trials."""

    takes_reports = True

    def on_report(self, request_id: int, batches: int, metrics: Any, time: float) -> Sequence[Action]:
        assert time > 1e9
        return self._next("on_report", request_id, batches, metrics)


def report_validation(store: TrackingStore, trial: TrialRecord, batches: int, **metrics: float) -> None:
    run = store.trial(trial.id).run_id or store.start_run(trial.id, allocation_id=str(trial.id)).run_id
    report = MetricsReport(trial_id=trial.id, run_id=run, group="validation", steps_completed=batches, metrics=metrics)
    store.report_metrics([report])


@pytest.fixture
def experiment_id(store: TrackingStore) -> int:
    return store.create_experiment(config={"name": "search"}).id


@pytest.fixture
def ended() -> list[TrialRecord]:
    """Return the trials that ended, in order."""
    return []


@pytest.fixture
def search(store: TrackingStore, experiment_id: int, ended: list[TrialRecord]) -> Any:
    def begin(*answers: Sequence[Action]) -> RecordedSearch:
        search = RecordedSearch(store, experiment_id, Scripted(*answers), seed=7, ended=ended.append)
        search.begin()
        return search

    return begin


def validated(trial: TrialRecord, metric: float = 0.5) -> TrialReport:
    return TrialReport(trial, ("on_validation", trial.searcher_length, metric), State.PAUSED)


def states(store: TrackingStore, experiment_id: int) -> list[str]:
    return [trial.state.value for trial in store.trials(experiment_id)]


def test_orders_wait_in_the_queue(search: Any, store: TrackingStore, experiment_id: int) -> None:
    begun = search(FIRST)
    assert [(t.request_id, t.searcher_length, t.ordered, t.seed) for t in begun.queue] == [(0, 4, 0, 7), (1, 4, 0, 8)]
    assert states(store, experiment_id) == ["QUEUED", "QUEUED"]
    assert [event.actions[0] for event in store.search_events(experiment_id)] == [["Create", 0, HPARAMS, None]]


def test_actions_are_recorded_with_their_event(
    search: Any, store: TrackingStore, experiment_id: int, ended: list[TrialRecord]
) -> None:
    begun = search(FIRST, [Train(0, 8)], [Close(1), Create(2, HPARAMS)])
    first, second = begun.queue
    begun.queue.clear()
    begun.report([validated(first)])
    assert ended == []
    assert [(t.request_id, t.searcher_length, t.ordered) for t in begun.queue] == [(0, 8, 1)]
    begun.report([validated(second)])
    assert [(trial.request_id, trial.state) for trial in ended] == [(1, State.COMPLETED)]
    assert states(store, experiment_id) == ["QUEUED", "COMPLETED", "PAUSED"]


def test_several_events_are_recorded_in_one_step(search: Any, store: TrackingStore, experiment_id: int) -> None:
    begun = search(FIRST, [], [Train(0, 8), Close(1)])
    begun.report([validated(trial) for trial in begun.queue])
    assert states(store, experiment_id) == ["QUEUED", "COMPLETED"]
    assert [event.number for event in store.search_events(experiment_id)] == [0, 1, 2]


def test_another_runner_continues_the_search(search: Any, store: TrackingStore, experiment_id: int) -> None:
    answers = (FIRST, [Train(0, 8)], [])
    begun = search(*answers)
    first, second = begun.queue
    begun.report([validated(first)])
    again = search(*answers)
    assert [(trial.request_id, trial.searcher_length) for trial in again.queue] == [(1, 4), (0, 8)]
    assert again._method.events == [("start",), ("on_validation", 0, 4, 0.5)]
    again.report([validated(second)])
    assert len(store.search_events(experiment_id)) == 3
    assert len(store.trials(experiment_id)) == 2


def test_another_runner_starts_trials_in_the_order_of_the_method(search: Any) -> None:
    answers = ([Create(0, HPARAMS), Create(1, HPARAMS), Create(2, HPARAMS), Train(2, 4), Train(1, 4), Train(0, 4)], [])
    begun = search(*answers)
    begun.report([validated(begun.queue.popleft())])
    for queue in (begun.queue, search(*answers).queue):
        assert [trial.request_id for trial in queue] == [1, 0]


def test_a_search_is_not_resumed_with_another_method(search: Any, store: TrackingStore, experiment_id: int) -> None:
    search(FIRST)
    with pytest.raises(DetError, match=r"start\(\) with .*'Train', 0, 5.*event 0 .*'Train', 0, 4.*; resume it"):
        search([Create(0, HPARAMS), Train(0, 5)])
    assert len(store.search_events(experiment_id)) == 1


def test_recorded_answers_win_over_a_method_that_takes_them(
    store: TrackingStore, experiment_id: int, search: Any
) -> None:
    """Samplers need not be bit-stable between releases."""

    class Sampler(Scripted):
        def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
            self.events.append((event, *arguments, actions))
            return actions

    begun = search(FIRST, [Train(0, 8)])
    begun.report([validated(begun.queue[0])])
    method = Sampler([Create(0, HPARAMS), Train(0, 5)], [Close(0)], [Close(1)])
    again = RecordedSearch(store, experiment_id, method, seed=7)
    again.begin()
    assert method.events == [("start", FIRST), ("on_validation", 0, 4, 0.5, [Train(0, 8)])]
    assert [(trial.request_id, trial.searcher_length) for trial in again.queue] == [(1, 4), (0, 8)]
    again.report([validated(again.queue[0])])
    assert states(store, experiment_id) == ["QUEUED", "COMPLETED"]


def test_a_snapshot_shortens_the_replay(
    search: Any, store: TrackingStore, experiment_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.runner._recorded_search._SNAPSHOT_EVERY", 2)
    answers = (FIRST, [Train(0, 8)], [], [])
    begun = search(*answers)
    first, second = begun.queue
    begun.report([validated(first)])
    assert store.search_snapshot(experiment_id) == (2, 2)
    begun.report([validated(second)])
    again = search(*answers)
    assert again._method.events == [("restored",), ("restored",), ("on_validation", 1, 4, 0.5)]
    again.report([validated(again.queue[0])])
    assert store.search_snapshot(experiment_id) == (4, 4)


@pytest.mark.parametrize("snapshot_every", [1, 1000])
def test_each_report_is_heard_once(
    store: TrackingStore, experiment_id: int, monkeypatch: pytest.MonkeyPatch, snapshot_every: int
) -> None:
    monkeypatch.setattr("det_core.runner._recorded_search._SNAPSHOT_EVERY", snapshot_every)
    answers = (FIRST, [], [], [Close(1)], [])

    def begin() -> RecordedSearch:
        search = RecordedSearch(store, experiment_id, Reporting(*answers), seed=7)
        search.begin()
        return search

    begun = begin()
    first, second = begun.queue
    begun.report_validations([first, second])
    report_validation(store, first, 1, loss=0.5, cost=3.0)
    begun.report_validations([first, second])
    begun.report_validations([first, second])
    again = begin()
    again.report_validations([first, second])
    report_validation(store, first, 2, loss=math.nan)
    report_validation(store, second, 2, loss=2.0)
    report_validation(store, second, 3, loss=3.0)
    again.report_validations([first, second])
    heard = [event.event[:3] for event in store.search_events(experiment_id)]
    assert heard == [["start"], ["on_report", 0, 1], ["on_report", 0, 2], ["on_report", 1, 2]]  # it is closed
    assert store.search_events(experiment_id)[1].event[3] == {"loss": 0.5, "cost": 3.0}
    assert (again.is_closing(first), again.is_closing(second)) == (False, True)
    assert begin().is_closing(second)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([Create(0, {})], "that trial exists already"),
        ([Train(5, 4)], "it has not created that trial"),
        ([Train(1, 8)], "has not finished its previous order"),
        ([Close(1), Close(1)], "it has closed the trial already"),
        ([Close(0), Train(0, 8)], "the trial has ended"),
        ([Train(0, 4)], "the trial has already trained 4"),
        ([Create(2, {}, source=0)], "its source trial has not saved any checkpoint"),
        ([Create(2, {}, source=5)], "its source trial does not exist yet"),
        ([Create(2, {}), Create(3, {}, source=2)], "its source trial does not exist yet"),
    ],
)
def test_impossible_actions_are_refused_and_not_recorded(
    search: Any, store: TrackingStore, experiment_id: int, answer: Sequence[Action], problem: str
) -> None:
    begun = search(FIRST, answer)
    with pytest.raises(DetError, match=problem):
        begun.report([validated(begun.queue[0])])
    assert len(store.search_events(experiment_id)) == 1
    assert states(store, experiment_id) == ["QUEUED", "QUEUED"]


def test_a_source_is_the_latest_checkpoint_at_that_moment(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    begun = search(FIRST, [Create(2, HPARAMS, source=0), Train(2, 4)])
    first = begun.queue[0]
    run = store.start_run(first.id, allocation_id="a")
    for uuid in ("early", "late"):
        store.begin_checkpoint(uuid, trial_id=first.id, run_id=run.run_id, storage={})
        store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=4, resources={}, metadata={})
    begun.report([validated(first)])
    assert begun.queue[-1].source_checkpoint == "late"


def test_a_replacement_starts_where_the_replaced_trial_started(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    """The source continues to train, but its later checkpoints belong to the next round and are not used."""
    begun = search(
        [Create(0, HPARAMS), Train(0, 4)],
        [Create(1, HPARAMS, source=0), Train(1, 4), Train(0, 8)],
        [Create(2, HPARAMS, source=0), Train(2, 4)],
    )
    first = begun.queue[0]
    run = store.start_run(first.id, allocation_id="a")

    def save(uuid: str, trial: TrialRecord = first) -> None:
        store.begin_checkpoint(uuid, trial_id=trial.id, run_id=run.run_id, storage={})
        store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=4, resources={}, metadata={})

    save("round-1")
    begun.report([validated(first)])
    clone = begun.queue[1]
    save("round-2")
    store.start_run(clone.id, allocation_id="a")
    save("of-invalid-hyperparameters", clone)
    begun.report([TrialReport(clone, ("on_exit", INVALID_HP), State.COMPLETED)])  # its own checkpoint is not used
    assert begun.queue[-1].source_checkpoint == "round-1"


def test_progress_counts_training_trials_and_never_decreases(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    begun = search(FIRST, [Train(0, 8)])
    first, second = begun.queue
    run = store.start_run(second.id, allocation_id="a")
    store.set_trial_progress(second.id, run.run_id, 0.5)
    begun.report([validated(first)])
    method = begun._method
    for progress, shown in [(0.5, 0.5), (0.25, 0.5), (7.0, 1.0)]:
        method.share = progress
        assert begun.progress(store.trials(experiment_id, ordered=True)) == shown
    assert method.lengths == {0: 4.0, 1: 2.0}


def test_the_longer_order_begins_where_the_last_one_ended(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    begun = search(FIRST, [Train(0, 16)])
    first = begun.queue[0]
    begun.report([validated(first)])
    assert store.trial(first.id).progress == 0.25


def exited(trial: TrialRecord, state: State = State.ERROR) -> TrialReport:
    return TrialReport(trial, ("on_exit", "error"), state)


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((State.ERROR, State.ERROR), State.ERROR),
        ((State.ERROR, State.CANCELED), State.ERROR),
        ((State.CANCELED, State.CANCELED), State.CANCELED),
        ((State.ERROR, State.COMPLETED), State.COMPLETED),
        ((State.ERROR, State.PAUSED), State.COMPLETED),
    ],
)
def test_the_outcome_of_a_search_follows_from_its_trials(
    search: Any, store: TrackingStore, ends: Sequence[State], outcome: State
) -> None:
    begun = search(FIRST, [], [])
    begun.report([exited(trial, state) for trial, state in zip(begun.queue, ends, strict=True)])
    assert begun.finish() is outcome
    assert State.PAUSED not in {trial.state for trial in begun._trials.values()}


def test_a_search_whose_trials_all_failed_starts_again(search: Any, store: TrackingStore, experiment_id: int) -> None:
    begun = search(FIRST, [], [])
    trials = list(begun.queue)
    begun.report([exited(trial) for trial in trials])
    again = search(FIRST)
    assert [trial.id for trial in again.queue] == [trial.id for trial in trials]
    assert states(store, experiment_id) == ["QUEUED", "QUEUED"]
    assert len(store.search_events(experiment_id)) == 1


def test_a_search_that_starts_again_leaves_no_order_behind(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    """Otherwise a trial that waited for its turn would end the resumed experiment with a KeyError."""
    begun = search([Create(0, HPARAMS), Train(0, 4)], [Create(1, HPARAMS), Train(1, 4)])
    begun.report([exited(begun.queue.popleft())])
    again = search([Create(0, HPARAMS), Train(0, 4)], [Create(1, HPARAMS), Train(1, 4)])
    assert again.progress(store.trials(experiment_id, ordered=True)) == 0
    assert states(store, experiment_id) == ["QUEUED", "CANCELED"]
    again.report([exited(again.queue.popleft())])
    assert states(store, experiment_id) == ["ERROR", "QUEUED"]


def test_a_search_with_a_request_to_end_a_trial_does_not_start_again(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    first = search(FIRST, []).queue[0]
    store.set_trial_state(first.id, State.ERROR)
    store.set_trial_state(first.id + 1, State.STOPPING_KILLED)
    search(FIRST, [])
    assert states(store, experiment_id) == ["ERROR", "STOPPING_KILLED"]


def test_a_search_that_begins_again_trains_what_its_method_asks_for(
    search: Any, store: TrackingStore, experiment_id: int
) -> None:
    """Restarts are counted from zero. A trial whose hyperparameters differ is created as a new trial."""
    begun = search(FIRST, [], [])
    same, other = begun.queue
    for trial in (same, other):
        store.count_restart(trial.id)
    begun.report([exited(same), exited(other)])
    again = search([Create(0, HPARAMS), Train(0, 4), Create(1, {"lr": 0.2}), Train(1, 4)], [], [])
    first, second = again.queue
    assert (first.id, first.restarts, first.hparams) == (same.id, 0, HPARAMS)
    assert second.id not in (same.id, other.id)
    assert (second.request_id, second.restarts, second.hparams) == (1, 0, {"lr": 0.2})
    aside = store.trial(other.id)
    assert (aside.request_id, aside.state, aside.hparams) == (-other.id, State.ERROR, HPARAMS)
    resumed = search([Create(0, HPARAMS), Train(0, 4), Create(1, {"lr": 0.2}), Train(1, 4)])
    assert [trial.id for trial in resumed.queue] == [first.id, second.id]


def test_trials_that_wait_at_the_end_have_ended(search: Any, ended: list[TrialRecord]) -> None:
    begun = search(FIRST, [], [])
    begun.report([validated(begun.queue.popleft()), validated(begun.queue.popleft())])
    assert ended == []
    begun.finish()
    assert [(trial.request_id, trial.state) for trial in ended] == [(0, State.COMPLETED), (1, State.COMPLETED)]


def test_queued_trials_are_canceled_and_can_be_resumed(
    search: Any, store: TrackingStore, experiment_id: int, ended: list[TrialRecord]
) -> None:
    search(FIRST).cancel()
    assert states(store, experiment_id) == ["CANCELED", "CANCELED"]
    assert [trial.state for trial in ended] == [State.CANCELED, State.CANCELED]
    again = search(FIRST)
    assert [trial.request_id for trial in again.queue] == [0, 1]


def test_a_replaced_runner_may_not_write(search: Any, store: TrackingStore, experiment_id: int) -> None:
    store.acquire_lease(experiment_id, "host:1:2:new", seconds=30)
    event = SearchEvent(number=0, event=["start"], actions=[])
    with pytest.raises(StaleRun, match=r"no longer run by host:1:2:old, but by host:1:2:new"):
        store.record_search(experiment_id, [event], [], lease="host:1:2:old")
    store.record_search(experiment_id, [event], [], lease="host:1:2:new")
    with pytest.raises(TrackingError, match=f"experiment {experiment_id} already has search event 0"):
        store.record_search(experiment_id, [event], [])
