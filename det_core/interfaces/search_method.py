"""What a search method implements: a pure state machine, events in, actions out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Create:
    """Create a trial under an id of the method's own choice."""

    request_id: int
    hparams: Mapping[str, Any]


@dataclass(frozen=True)
class Train:
    """Let the trial train up to ``length`` (absolute, in the unit of max_length), then validate.

    None: a command trains for as long as it likes.
    """

    request_id: int
    length: int | None


@dataclass(frozen=True)
class Close:
    """The trial has nothing more to do."""

    request_id: int


Action = Create | Train | Close


class SearchMethod(ABC):
    """Decides which trials exist and how long each trains.

    Constructed with (config block, hyperparameters, seed). It must not read the clock, the
    environment or a global random state: the runner replays its events to resume it.
    """

    @abstractmethod
    def start(self) -> Sequence[Action]:
        """The first actions, before any trial exists."""

    @abstractmethod
    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        """The trial trained to ``length`` and its searcher metric is ``metric``."""

    @abstractmethod
    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        """The trial ended by itself: ``invalid_hp``, ``error`` or ``stopped`` (it asked to stop)."""
