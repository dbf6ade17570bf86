"""The search of one experiment: its method, and the record from which another runner goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_jsonable_python

from det_core.errors import DetError
from det_core.interfaces.search_method import INVALID_HP, Action, Close, Create, SearchMethod, Train, plain
from det_core.interfaces.tracking import ENDINGS, NewTrial, SearchEvent, State, TrackingStore, Trial, TrialUpdate

_SNAPSHOT_EVERY = 1000
"""Events."""
_OUTCOMES = (State.COMPLETED, State.ERROR, State.CANCELED)
"""What a search came to: the first of these that one of its trials came to."""


@dataclass(frozen=True)
class Happened:
    """What became of a trial's order to train.

    Attributes:
        event: the name of the `SearchMethod`'s method that hears of it, and its arguments after the request id.
        state: of the trial, unless the method wants more of it.
    """

    trial: Trial
    event: tuple[Any, ...]
    state: State


class Search:
    """Tells the search method what happened, and records that in one step with all that it asks for.

    Attributes:
        queue: the trials that are to train and wait for their turn, the next one first.
    """

    def __init__(
        self, store: TrackingStore, experiment_id: int, method: SearchMethod, *, seed: int, lease: str = ""
    ) -> None:
        self.queue: deque[Trial] = deque()
        self._store = store
        self._experiment_id = experiment_id
        self._method = method
        self._seed = seed
        self._lease = lease
        self._events = 0
        self._trials: dict[int, Trial] = {}
        self._lengths: dict[int, float] = {}
        self._progress = 0.0

    def begin(self) -> None:
        """Start it, or take it up where the record ends; one that came to nothing but failures starts again.

        Raises:
            DetError: the method does not ask for the same as when the record was written.
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
        if not self._events:
            self._step([("start",)], {})
            return
        self._trials = {trial.request_id: trial for trial in known}
        self._lengths = {key: _length(trial) for key, trial in self._trials.items()}
        waiting = [(trial.ordered, trial.id, trial) for trial in known if trial.ordered is not None]
        self.queue.extend(trial for *_, trial in sorted(waiting, key=lambda one: one[:2]))

    def tell(self, happened: Sequence[Happened]) -> list[Trial]:
        """Tell the method, in that order; what it asks for is in the queue afterwards.

        Returns:
            The trials that ended by that.

        Raises:
            DetError: it asks for what cannot be.
        """
        updates = {}
        for one in happened:
            key = one.trial.request_id
            updates[key] = TrialUpdate(request_id=key, state=one.state)
            self._lengths[key] = max(self._lengths[key], float(one.trial.searcher_length or 0))
        return self._step([(one.event[0], one.trial.request_id, *one.event[1:]) for one in happened], updates)

    def leave_out(self, trial_ids: Container[int]) -> None:
        """Take these trials out of the queue."""
        self.queue = deque(trial for trial in self.queue if trial.id not in trial_ids)

    def progress(self, training: Iterable[Trial]) -> float:
        """How much of the search is done, 0 to 1; never less than it was.

        Args:
            training: the trials that have not finished their orders, as they are now.
        """
        for trial in training:
            self._lengths[trial.request_id] = max(self._lengths[trial.request_id], _length(trial))
        self._progress = min(max(self._progress, self._method.progress(self._lengths)), 1.0)
        return self._progress

    def cancel(self) -> None:
        """Note that the trials in the queue will not train, unless somebody resumes the search."""
        self._update([replace(_update(trial), state=State.CANCELED) for trial in self.queue])

    def finish(self) -> State:
        """Nothing is left to train: what the search came to.

        ERROR or CANCELED: trials failed, or were ended by a person, and no other one came to an end of its own.
        """
        waiting = [trial for trial in self._trials.values() if not trial.state.final]
        self._update([replace(_update(trial), state=State.COMPLETED) for trial in waiting])
        return _outcome(self._trials.values())

    def _update(self, updates: Sequence[TrialUpdate]) -> list[Trial]:
        return self._note(self._store.record_search(self._experiment_id, [], updates, lease=self._lease))

    def _replay(self, recorded: SearchEvent) -> None:
        name, *arguments = recorded.event
        actions = [_json(action) for action in self._ask(name, *arguments)]
        if actions != recorded.actions:
            raise DetError(
                f"the search method answers {name}{tuple(arguments)} with {actions}, and the record of experiment "
                f"{self._experiment_id} has {recorded.actions} as event {recorded.number}; resume it with the code and "
                "the releases it was begun with, or start a new experiment"
            )
        self._events += 1

    def _step(self, events: Sequence[Sequence[Any]], updates: dict[int, TrialUpdate]) -> list[Trial]:
        """Tell the method, and record what it asks for; the trials that ended by that."""
        before = self._events
        recorded, ordered = [], []
        for name, *arguments in events:
            actions = list(self._ask(name, *arguments))
            for action in actions:
                self._take(action, updates, (name, *arguments))
            ordered += [action.request_id for action in actions if isinstance(action, Train)]
            recorded.append(
                SearchEvent(number=self._events, event=[name, *arguments], actions=[_json(one) for one in actions])
            )
            self._events += 1
        due = self._events // _SNAPSHOT_EVERY > before // _SNAPSHOT_EVERY
        after = self._store.record_search(
            self._experiment_id,
            recorded,
            list(updates.values()),
            snapshot=self._method.state() if due else None,
            lease=self._lease,
        )
        ended = self._note(after)
        self.queue.extend(self._trials[request_id] for request_id in ordered)
        return ended

    def _note(self, after: Iterable[Trial]) -> list[Trial]:
        """Remember how trials are now; those that have just ended."""
        ended = []
        for trial in after:
            before = self._trials.get(trial.request_id)
            if trial.state.final and not (before and before.state.final and before.ordered is None):
                ended.append(trial)
            self._trials[trial.request_id] = trial
            self._lengths.setdefault(trial.request_id, 0.0)
        return ended

    def _ask(self, name: str, *arguments: Any) -> Sequence[Action]:
        actions: Sequence[Action] = getattr(self._method, name)(*arguments)
        return actions

    def _take(self, action: Action, updates: dict[int, TrialUpdate], event: tuple[Any, ...]) -> None:
        """Turn an action into an update of its trial.

        Args:
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
        if isinstance(action, Create):
            return "there is such a trial already" if now else ""
        if now is None:
            return "it has created no such trial"
        if now.ordered is not None:
            return "the trial still has an order to train"
        if isinstance(action, Close):
            return ""
        if now.state.final:
            return "the trial has ended"
        reached = self._lengths.get(action.request_id, 0)
        return f"the trial has trained {reached:g}" if action.length and action.length <= reached else ""

    def _updated(self, action: Action, now: TrialUpdate | None, event: tuple[Any, ...]) -> TrialUpdate:
        if now is None:
            assert isinstance(action, Create)
            return TrialUpdate(request_id=action.request_id, state=State.PAUSED, new=self._new(action, event))
        if isinstance(action, Train):
            return replace(now, state=State.QUEUED, ordered=self._events, length=action.length)
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
            if (
                start and self._store.checkpoint(start).trial_id == origin
            ):  # later checkpoints of the source belong to the next round
                return start
        checkpoints = self._store.checkpoints(trial_id=origin)
        if not checkpoints:
            raise DetError(
                f"the search method asks for {action}, but that source has saved no checkpoint to start from"
            )
        return checkpoints[-1].uuid


def _update(trial: Trial) -> TrialUpdate:
    """That changes nothing."""
    return TrialUpdate(request_id=trial.request_id, state=trial.state, ordered=trial.ordered)


def _outcome(trials: Iterable[Trial]) -> State:
    states = {trial.state for trial in trials}
    return next((state for state in _OUTCOMES if state in states), State.COMPLETED)


def _length(trial: Trial) -> float:
    """How long it has trained."""
    return (trial.searcher_length or 0) * (1.0 if trial.ordered is None else trial.progress)


def _json(action: Action) -> list[Any]:
    """As the record gives it back."""
    written: list[Any] = to_jsonable_python(plain(action))
    return written
