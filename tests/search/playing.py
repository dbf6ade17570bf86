"""Search methods from configs, and the rules for every sequence of actions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from det_core.config import parse_config
from det_core.interfaces.search_method import WORST, Action, Close, Create, SearchMethod, Train
from det_core.search.method_selection import open_search_method

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
    "depth": {"type": "int", "minval": 1, "maxval": 8},
}


def make(name: str, *, hyperparameters: dict[str, Any] | None = None, seed: int = 7, **options: Any) -> SearchMethod:
    config = parse_config(
        {
            "entrypoint": "model:Trial",
            "searcher": {"name": name, "metric": "loss", **options},
            "hyperparameters": SPACE if hyperparameters is None else hyperparameters,
            "reproducibility": {"experiment_seed": seed},
        }
    )
    with open_search_method(config, Path()) as method:
        return method


def brief(actions: Sequence[Action]) -> str:
    """Return actions in short form.

    ``+2 2:4 -1`` creates trial 2, trains it to 4 and closes trial 1. ``+3<2`` starts trial 3 from trial 2's checkpoint.
    """

    def word(action: Action) -> str:
        match action:
            case Create():
                return f"+{action.request_id}" + ("" if action.source is None else f"<{action.source}")
            case Train():
                return f"{action.request_id}:{action.length}"
            case Close():
                return f"-{action.request_id}"

    return " ".join(map(word, actions))


class Game:
    """Player of a search, which checks the rules and remembers every event."""

    def __init__(self, build: Callable[[], SearchMethod]) -> None:
        self._build = build
        self.method = build()
        self.created: dict[int, Create] = {}
        self.open: dict[int, int | None] = {}
        self.trained: dict[int, int] = {}
        self.closed: set[int] = set()
        self.events: list[tuple[Any, ...]] = []
        self.actions: list[list[Action]] = []
        self.snapshot: tuple[int, str] = (0, "")
        self.lengths: dict[int, float] = {}
        self.most_open = 0
        self.progress = 0.0
        self._take(self.method.start())

    def tell(self, name: str, *arguments: Any) -> None:
        request_id = arguments[0]
        length = self.open.pop(request_id)
        if name == "on_exit":
            self.closed.add(request_id)
        else:
            self.trained[request_id] = length or 0
        self.events.append((name, *arguments))
        self._take(getattr(self.method, name)(*arguments))

    def save(self) -> None:
        self.snapshot = len(self.events), json.dumps(self.method.state())

    def crash(self, *, from_snapshot: bool) -> None:
        """Continue with a new object, made from the last snapshot or from nothing, and the events since."""
        known, state = self.snapshot if from_snapshot else (0, "")
        self.method = self._build()
        if state:
            self.method.restore(json.loads(state))
        else:
            assert list(self.method.start()) == self.actions[0]
        for event, actions in zip(self.events[known:], self.actions[known + 1 :], strict=True):
            assert list(getattr(self.method, event[0])(*event[1:])) == actions

    def _take(self, actions: Sequence[Action]) -> None:
        self.actions.append(list(actions))
        for action in actions:
            request_id = action.request_id
            if isinstance(action, Create):
                assert request_id == len(self.created)
                assert action.source is None or action.source in self.created
                self.created[request_id] = action
            elif isinstance(action, Train):
                assert request_id in self.created and request_id not in self.closed and request_id not in self.open
                assert action.length is None or action.length > self.trained.get(request_id, 0)
                self.open[request_id] = action.length
            else:
                assert request_id in self.created and request_id not in self.closed and request_id not in self.open
                self.closed.add(request_id)
        self.most_open = max(self.most_open, len(self.open))

    def look(self, rng: random.Random) -> None:
        """Check that the progress never decreases, whatever the progress of the trials."""
        for request_id, length in self.open.items():
            if length:
                self.lengths[request_id] = max(self.lengths.get(request_id, 0), rng.uniform(0, length))
        progress = self.method.progress(self.lengths)
        assert self.progress - 1e-9 <= progress <= 1
        self.progress = progress

    def play(self, rng: random.Random, *, invalid: float, error: float, crash: float) -> None:
        """Play random events to the end."""
        while self.open:
            request_id = rng.choice(list(self.open))
            chance = rng.random()
            if chance < invalid:
                self.tell("on_exit", request_id, "invalid_hp")
            elif chance < invalid + error:
                self.tell("on_exit", request_id, rng.choice(["error", "stopped"]))
            else:
                metric = rng.choice([rng.random(), round(rng.random(), 1), WORST])
                self.tell("on_validation", request_id, self.open[request_id], metric)
            if rng.random() < crash:
                self.crash(from_snapshot=rng.random() < 0.5)
            if rng.random() < crash:
                self.save()
            self.look(rng)
