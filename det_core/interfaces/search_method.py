"""What a search method implements: a pure state machine, events in, actions out."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORST = sys.float_info.max
"""The metric of what has none: NaN or infinite, not reported, or of a trial that failed."""
INVALID_HP = "invalid_hp"
"""The reason of a trial whose hyperparameters cannot work."""


@dataclass(frozen=True)
class Create:
    """Create a trial.

    Args:
        request_id: of the method's own choice: 0, 1, 2, ...
        hparams: its hyperparameters.
        source: the trial whose latest checkpoint it starts from; it counts its own training from 0 all the same.
            If it replaces a trial with invalid hyperparameters that also started from a checkpoint of ``source``,
            it starts from that same checkpoint.
    """

    request_id: int
    hparams: Mapping[str, Any]
    source: int | None = None


@dataclass(frozen=True)
class Train:
    """Let the trial train up to ``length`` (absolute, in the unit of max_length), then validate.

    A trial has at most one such order at a time, and each is longer than the one before.
    None: a command trains for as long as it likes.
    """

    request_id: int
    length: int | None


@dataclass(frozen=True)
class Close:
    """The trial has nothing more to do. One that exited by itself is closed already."""

    request_id: int


Action = Create | Train | Close


def plain(action: Action) -> list[Any]:
    """Its name and its fields, in types that JSON has if the hyperparameters are."""
    return [type(action).__name__, *vars(action).values()]


class SearchMethod(ABC):
    """Decides which trials exist and how long each trains.

    Constructed with (config block, hyperparameters, seed). It must not read the clock, the environment or a
    global random state: the same events lead to the same actions, which is how a search is resumed.

    One in a file of the experiment's own, ``mine.py``, needs no plugin: ``searcher: {name: custom, metric: loss,
    method: "mine:UntilGood", options: {length: 100}}`` runs it in a process beside the runner::

        class UntilGood(SearchMethod):
            def __init__(self, options, hyperparameters, seed):
                self.length, self.space, self.rng = options["length"], hyperparameters, random.Random(seed)

            def start(self):
                return self.try_one(0)

            def try_one(self, request_id):
                hparams = sample_hyperparameters(self.space, self.rng)
                return [Create(request_id, hparams), Train(request_id, self.length)]

            def on_validation(self, request_id, length, metric):
                return [Close(request_id), *(self.try_one(request_id + 1) if metric > 0.1 else [])]

            def on_exit(self, request_id, reason):
                return self.try_one(request_id + 1)
    """

    def open(self, context_dir: Path) -> None:
        """Called once, before anything else; ``context_dir`` is the user's code."""

    def close(self) -> None:
        """Called once, after everything else."""

    @abstractmethod
    def start(self) -> Sequence[Action]:
        """The first actions, before any trial exists."""

    @abstractmethod
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        """The trial trained to ``length``, and its searcher metric is ``metric``: finite, smaller is better."""

    @abstractmethod
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        """The trial ended by itself: ``invalid_hp``, ``error`` or ``stopped`` (it asked to stop)."""

    def progress(self, lengths: Mapping[int, float]) -> float:
        """How much of the whole search is done, 0 to 1; never less than it was.

        Args:
            lengths: how long each trial has trained so far, which never goes down.
        """
        return 0.0

    def outline(self) -> Sequence[str]:
        """What a person wants to know of the search before it starts, a line each."""
        return ()

    def state(self) -> Any:
        """A snapshot, in types that JSON has; None if all events have to be replayed instead."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a snapshot, instead of `start`."""
        raise NotImplementedError(f"{type(self).__name__} takes no snapshots")
