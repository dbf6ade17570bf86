"""Interface of a search method: a pure state machine that turns events into actions."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Action", "Close", "Create", "INVALID_HP", "SearchMethod", "Train", "WORST"]

WORST = sys.float_info.max
"""Metric of a trial that failed, or that reported NaN, an infinity or nothing."""
INVALID_HP = "invalid_hp"
"""Exit reason of a trial whose hyperparameters cannot work."""


@dataclass(frozen=True)
class Create:
    """Create a trial.

    Args:
        request_id: id of the trial, chosen by the method: 0, 1, 2, ...
        hparams: its hyperparameters.
        source: trial whose latest checkpoint it starts from. Its own training is still counted from 0. If it replaces a
            trial with invalid hyperparameters that also started from a checkpoint of ``source``, it starts from that
            same checkpoint.
    """

    request_id: int
    hparams: Mapping[str, Any]
    source: int | None = None


@dataclass(frozen=True)
class Train:
    """Train the trial up to ``length``, then validate.

    A trial has at most one such order at a time, and each is longer than the previous one.

    Args:
        request_id: id of the trial.
        length: total length since the start of the trial, in the unit of max_length. None lets a command train as long
            as it decides to.
    """

    request_id: int
    length: int | None


@dataclass(frozen=True)
class Close:
    """Close a trial that has nothing more to do. A trial that exited by itself is closed already.

    A trial that trains or waits to train saves a checkpoint and stops. Then the method gets `SearchMethod.on_exit` with
    the reason ``stopped``, also if the trial has finished its order in the meantime.

    Args:
        request_id: id of the trial.
    """

    request_id: int


Action = Create | Train | Close
"""Any action of a search method."""


def action_to_json(action: Action) -> list[Any]:
    """Return the action's name and fields, JSON-compatible if the hyperparameters are."""
    return [type(action).__name__, *vars(action).values()]


def action_from_json(values: Sequence[Any]) -> Action:
    """Return the action that `action_to_json` described."""
    name, *fields = values
    return _ACTIONS[name](*fields)


_ACTIONS: Mapping[str, Callable[..., Action]] = {action.__name__: action for action in (Create, Train, Close)}


class SearchMethod(ABC):
    """Strategy that decides which trials exist and how long each of them trains.

    Constructed with (config block, hyperparameters, seed). It must not read the clock, the environment or a global
    random state. A search is resumed by replaying its events, so the same events must lead to the same actions, unless
    the method overrides `replay`.

    A method in one of the experiment's own files, such as ``mine.py``, needs no plugin. ``searcher: {name: custom,
    metric: loss, method: "mine:UntilGood", options: {length: 100, most: 20}}`` runs it in a process of its own::

        class UntilGood(SearchMethod):
            def __init__(self, options, hyperparameters, seed):
                self.options, self.space, self.rng = options, hyperparameters, random.Random(seed)

            def start(self):
                return self.try_one(0)

            def try_one(self, request_id):
                if request_id == self.options["most"]:  # a search must end, even if all of its trials fail
                    return []
                hparams = sample_hyperparameters(self.space, self.rng)
                return [Create(request_id, hparams), Train(request_id, self.options["length"])]

            def on_validation(self, request_id, length, metric):
                return [Close(request_id), *(self.try_one(request_id + 1) if metric > 0.1 else [])]

            def on_exit(self, request_id, reason):
                return self.try_one(request_id + 1)
    """

    takes_reports: bool = False
    """Whether the method gets `on_report`."""

    def open(self, context_dir: Path) -> None:
        """Prepare the method. Called once before anything else.

        Args:
            context_dir: directory of the user's code.
        """

    def close(self) -> None:
        """Release resources. Called once after everything else."""

    @abstractmethod
    def start(self) -> Sequence[Action]:
        """Return the first actions, before any trial exists."""

    @abstractmethod
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        """Return actions after a trial has trained to ``length``.

        Args:
            request_id: id of the trial.
            length: total length trained, as in `Train`.
            metric: value of the searcher's metric. It is finite, and smaller is better.
        """

    def on_report(self, request_id: int, batches: int, metrics: Mapping[str, Any], time: float) -> Sequence[Action]:
        """Return actions after a trial has reported validation metrics, at an ordered length or before it.

        Called only if `takes_reports` is true, up to some seconds after the report, once per number of batches of a
        trial, and before `on_validation` of the same length.

        Args:
            request_id: id of the trial.
            batches: number of batches trained.
            metrics: all metrics of the report by name, as the trial reported them, JSON-compatible. They may be NaN.
            time: time of the report in seconds since 1970.
        """
        return ()

    @abstractmethod
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        """Return actions after a trial has ended by itself.

        Args:
            request_id: id of the trial.
            reason: ``invalid_hp``, ``error``, or ``stopped`` if the trial requested to stop or was closed.
        """

    def replay(self, event: str, arguments: Sequence[Any], actions: Sequence[Action]) -> Sequence[Action]:
        """Return the actions that answer a recorded event of a search that is resumed.

        The search ends with an error if they differ from the recorded ones. By default, the method of the event answers
        again. A method whose answers may change between releases, for example because of a sampler that it wraps,
        overrides this: it takes over the event and the recorded actions, and returns them.

        Args:
            event: ``start``, ``on_report``, ``on_validation`` or ``on_exit``.
            arguments: arguments of the event.
            actions: recorded actions.
        """
        answers: Sequence[Action] = getattr(self, event)(*arguments)
        return answers

    def progress(self, lengths: Mapping[int, float]) -> float:
        """Return the share of the whole search that is done, 0 to 1. It must never decrease.

        Args:
            lengths: length that each trial has trained so far. Lengths never decrease.
        """
        return 0.0

    def outline(self) -> Sequence[str]:
        """Return a summary of the search for users to read before it starts, one string per line."""
        return ()

    def state(self) -> Any:
        """Return a JSON-compatible snapshot, or None if all events have to be replayed instead."""
        return None

    def restore(self, state: Any) -> None:
        """Continue from a snapshot. Called instead of `start`."""
        raise NotImplementedError(f"{type(self).__name__} does not support snapshots")
