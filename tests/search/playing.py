"""Search methods from configs, and the rules for every sequence of actions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from det_testing.search_method.search_player import SearchPlayer

from det_core.config import parse_config
from det_core.interfaces.search_method import Action, Close, Create, SearchMethod, Train
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


class Game(SearchPlayer):
    """Player of a search, which checks the rules and survives crashes."""

    def __init__(self, build: Callable[[], SearchMethod]) -> None:
        self._build = build
        self.snapshot: tuple[int, str] = (0, "")
        self.most_open = 0
        super().__init__(build())

    def report(self, event: str, *arguments: Any) -> None:
        super().report(event, *arguments)
        assert not self.problems
        self.most_open = max(self.most_open, len(self.ordered))

    def save(self) -> None:
        self.snapshot = len(self.events), json.dumps(self.method.state())

    def crash(self, *, from_snapshot: bool) -> None:
        """Continue with a new object, made from the last snapshot or from nothing, and the events since."""
        known, state = self.snapshot if from_snapshot else (0, "")
        self.method = self._build()
        if state:
            self.method.restore(json.loads(state))
        for (event, *arguments), actions in zip(self.events[known:], self.actions[known:], strict=True):
            assert list(getattr(self.method, event)(*arguments)) == actions

    def play(self, rng: random.Random, *, invalid: float, error: float, crash: float) -> None:
        """Play random events to the end."""
        exits = {"invalid_hp": invalid, "error": error / 2, "stopped": error / 2}
        while self.ordered:
            self.step(rng, exits)
            if rng.random() < crash:
                self.crash(from_snapshot=rng.random() < 0.5)
            if rng.random() < crash:
                self.save()
            self.watch(rng)
            assert not self.problems
