"""Search of one experiment, recorded so that another runner can continue it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from det_core.errors import DetError
from det_core.interfaces.records import ENDINGS, NewTrial, SearchEvent, State, TrialRecord, TrialUpdate
from det_core.interfaces.search_method import (
    INVALID_HP,
    Action,
    Close,
    Create,
    SearchMethod,
    Train,
    action_from_json,
    action_to_json,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.json_values import copy_as_json

_SNAPSHOT_EVERY = 1000
"""Number of events between two snapshots of the search method."""
CLOSING = State.STOPPING_CANCELED
"""State of a trial that its search has closed while it trained or waited to train, until it has stopped."""
_OUTCOMES = (State.COMPLETED, State.ERROR, State.CANCELED)
"""Possible outcomes of a search. The first one that is the state of any trial counts."""


@dataclass(frozen=True)
class TrialReport:
    """Result of a trial's order to train.

    Attributes:
        trial: the trial as it was when it was started.
        event: the name of the `SearchMethod` method to call, followed by its arguments after the request id.
        state: the new state of the trial, unless the method orders more training.
    """

    trial: TrialRecord
    event: tuple[Any, ...]
    state: State


class RecordedSearch:
    """Search that reports events to its method, and records each event together with the method's actions.

    Args:
        store: the tracking store.
        experiment_id: the experiment of the search.
        method: the search method, which is new.
        seed: the experiment's seed, from which the seeds of the trials are derived.
        lease: the holder of the experiment's lease.
        ended: function called with the record of each trial that has reached a final state.

    Attributes:
        queue: the trials that wait for training, next one first.
    """

    def __init__(
        self,
        store: TrackingStore,
        experiment_id: int,
        method: SearchMethod,
        *,
        seed: int,
        lease: str = "",
        ended: Callable[[TrialRecord], None] = lambda _: None,
    ) -> None:
        self.queue: deque[TrialRecord] = deque()
        self._store = store
        self._experiment_id = experiment_id
        self._method = method
        self._seed = seed
        self._lease = lease
        self._ended = ended
        self._events = 0
        self._trials: dict[int, TrialRecord] = {}
        self._lengths: dict[int, float] = {}
        self._reported: dict[int, int] = {}
        """Number of batches of the last report of each trial that the method got, by request id."""
        self._progress = 0.0

    def begin(self) -> None:
        """Start the search, or continue it where its record ends.

        A search whose outcome is ERROR starts from the beginning if none of its trials can continue.

        Raises:
            DetError: the method answers recorded events with other actions (`SearchMethod.replay`).
        """
        known = [trial for trial in self._store.trials(self._experiment_id) if trial.request_id >= 0]
        goes_on = any((trial.ordered is not None and trial.run_id) or trial.state in ENDINGS for trial in known)
        if _outcome(known) is State.ERROR and not goes_on:
            self._store.forget_search(self._experiment_id, lease=self._lease)
        if snapshot := self._store.search_snapshot(self._experiment_id):
            self._events, state = snapshot
            self._method.restore(state)
        for recorded in self._store.search_events(self._experiment_id, start=self._events):
            self._replay(recorded)
        if self._method.takes_reports:  # those before a snapshot were not replayed
            events = (recorded.event for recorded in self._store.search_events(self._experiment_id))
            self._reported = {event[1]: event[2] for event in events if event[0] == "on_report"}
        if not self._events:
            self._step([("start",)], {})
            return
        self._trials = {trial.request_id: trial for trial in known}
        self._lengths = {key: _length(trial) for key, trial in self._trials.items()}
        waiting = {(trial.ordered, trial.request_id): trial for trial in known if trial.ordered is not None}
        places = {order: place for place, order in enumerate(self._orders(waiting))}
        self.queue.extend(waiting[order] for order in sorted(waiting, key=places.__getitem__))

    def _orders(self, waiting: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the event and the trial of each order since the oldest that waits, as the method has given them."""
        oldest = min((event for event, _ in waiting), default=self._events)
        for recorded in self._store.search_events(self._experiment_id, start=oldest):
            for action in map(action_from_json, recorded.actions):
                if isinstance(action, Train):
                    yield recorded.number, action.request_id

    def report(self, happened: Sequence[TrialReport]) -> None:
        """Report results to the method in the given order, and queue the trials that it orders to train.

        Raises:
            DetError: the method asks for an impossible action.
        """
        updates = {}
        for one in happened:
            key = one.trial.request_id
            updates[key] = TrialUpdate(request_id=key, state=one.state)
            self._lengths[key] = max(self._lengths[key], float(one.trial.searcher_length or 0))
        self._step([(one.event[0], one.trial.request_id, *one.event[1:]) for one in happened], updates)

    def report_validations(self, trials: Iterable[TrialRecord]) -> None:
        """Report the latest validation metrics of trials to the method, if it takes them.

        Raises:
            DetError: the method asks for an impossible action.
        """
        for trial in trials if self._method.takes_reports else ():
            key = trial.request_id
            for report in self._store.metrics(trial.id, group="validation", after=self._reported.get(key, -1)):
                if report.time is None or self.is_closing(trial):
                    break
                self._step([("on_report", key, report.steps_completed, report.metrics, report.time.timestamp())], {})
                self._reported[key] = report.steps_completed

    def is_closing(self, trial: TrialRecord) -> bool:
        """Return whether the method has closed a trial that has not stopped yet."""
        return self._trials[trial.request_id].state is CLOSING

    def dequeue(self, trial_ids: Container[int]) -> None:
        """Remove trials from the queue."""
        self.queue = deque(trial for trial in self.queue if trial.id not in trial_ids)

    def progress(self, training: Iterable[TrialRecord]) -> float:
        """Return the completed share of the search, from 0 to 1. It never decreases.

        Args:
            training: the current records of the trials that have not finished their orders.
        """
        for trial in training:
            self._lengths[trial.request_id] = max(self._lengths[trial.request_id], _length(trial))
        self._progress = min(max(self._progress, self._method.progress(self._lengths)), 1.0)
        return self._progress

    def cancel(self) -> None:
        """Record the trials in the queue as canceled. They train if the search is resumed."""
        self._update([replace(_update(trial), state=State.CANCELED) for trial in self.queue])

    def finish(self) -> State:
        """Record the search as finished when nothing is left to train, and return its outcome.

        Returns:
            COMPLETED if a trial has completed or there is none, else ERROR if a trial has failed, else CANCELED.
        """
        waiting = [trial for trial in self._trials.values() if not trial.state.final]
        self._update([replace(_update(trial), state=State.COMPLETED) for trial in waiting])
        return _outcome(self._trials.values())

    def _update(self, updates: Sequence[TrialUpdate]) -> None:
        self._note(self._store.record_search(self._experiment_id, [], updates, lease=self._lease))

    def _replay(self, recorded: SearchEvent) -> None:
        name, *arguments = recorded.event
        expected = [action_from_json(action) for action in recorded.actions]
        actions = _recorded_form(self._method.replay(name, arguments, expected))
        if actions != recorded.actions:
            raise DetError(
                f"the search method answers {name}{tuple(arguments)} with {actions}, but event {recorded.number} of "
                f"experiment {self._experiment_id} was recorded with {recorded.actions}; resume it with the code and "
                "package versions that it was started with, or start a new experiment"
            )
        self._events += 1

    def _step(self, events: Sequence[Sequence[Any]], updates: dict[int, TrialUpdate]) -> None:
        """Report events to the method, and record its actions."""
        before = self._events
        recorded, ordered = [], []
        for name, *arguments in events:
            actions = list(self._ask(name, *arguments))
            for action in actions:
                self._take(action, updates, (name, *arguments))
            ordered += [action.request_id for action in actions if isinstance(action, Train)]
            recorded.append(SearchEvent(number=self._events, event=[name, *arguments], actions=_recorded_form(actions)))
            self._events += 1
        due = self._events // _SNAPSHOT_EVERY > before // _SNAPSHOT_EVERY
        after = self._store.record_search(
            self._experiment_id,
            recorded,
            list(updates.values()),
            snapshot=self._method.state() if due else None,
            lease=self._lease,
        )
        self._note(after)
        self.queue.extend(self._trials[request_id] for request_id in ordered)

    def _note(self, after: Iterable[TrialRecord]) -> None:
        """Take over the new records of trials, and report those that have just ended."""
        for trial in after:
            before = self._trials.get(trial.request_id)
            if trial.state.final and not (before and before.state.final and before.ordered is None):
                self._ended(trial)
            self._trials[trial.request_id] = trial
            self._lengths.setdefault(trial.request_id, 0.0)

    def _ask(self, name: str, *arguments: Any) -> Sequence[Action]:
        actions: Sequence[Action] = getattr(self._method, name)(*arguments)
        return actions

    def _take(self, action: Action, updates: dict[int, TrialUpdate], event: tuple[Any, ...]) -> None:
        """Turn an action into an update of its trial.

        Args:
            action: the action.
            updates: the updates so far, by request id. The new one is added.
            event: the event that the method answers with the action.
        """
        now = self._now(action.request_id, updates)
        if problem := self._problem(action, now):
            raise DetError(f"the search method asks for {action}, but {problem}")
        updates[action.request_id] = self._updated(action, now, event)

    def _now(self, request_id: int, updates: Mapping[int, TrialUpdate]) -> TrialUpdate | None:
        if request_id in updates or request_id not in self._trials:
            return updates.get(request_id)
        return _update(self._trials[request_id])

    def _problem(self, action: Action, now: TrialUpdate | None) -> str:
        """Return why the action is impossible, or "" if it is possible."""
        if isinstance(action, Create):
            if action.source is not None and action.source not in self._trials:
                return "its source trial does not exist yet"
            return "that trial exists already" if now else ""
        if now is None:
            return "it has not created that trial"
        if isinstance(action, Close):
            return "it has closed the trial already" if now.state is CLOSING else ""
        if now.ordered is not None:
            return "the trial has not finished its previous order"
        if now.state.final:
            return "the trial has ended"
        reached = self._lengths.get(action.request_id, 0)
        return f"the trial has already trained {reached:g}" if action.length and action.length <= reached else ""

    def _updated(self, action: Action, now: TrialUpdate | None, event: tuple[Any, ...]) -> TrialUpdate:
        if now is None:
            assert isinstance(action, Create)
            return TrialUpdate(request_id=action.request_id, state=State.PAUSED, new=self._new(action, event))
        if isinstance(action, Train):
            return replace(now, state=State.QUEUED, ordered=self._events, length=action.length)
        if now.ordered is not None:
            return replace(now, state=CLOSING)
        return now if now.state.final else replace(now, state=State.COMPLETED)

    def _new(self, action: Create, event: tuple[Any, ...]) -> NewTrial:
        seed = (self._seed + action.request_id) % 2**32
        return NewTrial(hparams=action.hparams, seed=seed, source_checkpoint=self._source(action, event))

    def _source(self, action: Create, event: tuple[Any, ...]) -> str | None:
        if action.source is None:
            return None
        origin = self._trials[action.source].id
        if event[0] == "on_exit" and event[2] == INVALID_HP:
            start = self._trials[event[1]].source_checkpoint
            if start and self._store.checkpoint(start).trial_id == origin:  # newer ones belong to the next round
                return start
        checkpoints = self._store.checkpoints(trial_id=origin)
        if not checkpoints:
            raise DetError(f"the search method asks for {action}, but its source trial has not saved any checkpoint")
        return checkpoints[-1].uuid


def _update(trial: TrialRecord) -> TrialUpdate:
    """Return an update that leaves the trial as it is."""
    return TrialUpdate(request_id=trial.request_id, state=trial.state, ordered=trial.ordered)


def _outcome(trials: Iterable[TrialRecord]) -> State:
    states = {trial.state for trial in trials}
    return next((state for state in _OUTCOMES if state in states), State.COMPLETED)


def _length(trial: TrialRecord) -> float:
    """Return the length for which a trial has trained, in the unit of the searcher."""
    return (trial.searcher_length or 0) * (1.0 if trial.ordered is None else trial.progress)


def _recorded_form(actions: Iterable[Action]) -> list[Any]:
    """Return actions in the form in which the tracking store returns them."""
    return [copy_as_json(action_to_json(action)) for action in actions]
