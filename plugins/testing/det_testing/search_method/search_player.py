"""Player of a search, which acts as the runner and reports random results of trials that do not exist."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_core.config import parse_config
from det_core.interfaces.search_method import INVALID_HP, WORST, Action, Close, Create, SearchMethod, action_to_json
from det_core.search.method_selection import open_search_method

Exits = Mapping[str, float]
"""Probabilities with which an order ends with ``on_exit``, by reason."""

SCENARIOS: Mapping[str, Exits] = {
    "all succeed": {},
    "some stop": {"stopped": 0.3},
    "some are invalid": {INVALID_HP: 0.3},
    "some fail": {"error": 0.3},
    "mixed": {"stopped": 0.1, INVALID_HP: 0.2, "error": 0.1},
    "all stop": {"stopped": 1},
    "all are invalid": {INVALID_HP: 1},
    "all fail": {"error": 1},
}
"""Endings of the trials of a search, by name."""


class SearchPlayer:
    """Player of one search.

    Args:
        method: the search method, which has been opened and not started.

    Attributes:
        created: the trials.
        ordered: ordered lengths of the trials that train, by request id.
        trained: lengths of the orders that the trials have finished.
        closed: trials that were closed or have exited.
        stopping: trials that were closed while they trained, and have not exited yet.
        events: everything that was reported to the method.
        actions: the actions with which it answered each event.
        problems: actions that break a rule, by the field or aspect that is wrong. They are not carried out.
        progress: last progress of the search.
        batches: number of batches after which each trial has reported validation metrics.
    """

    def __init__(self, method: SearchMethod) -> None:
        self.method = method
        self.created: dict[int, Create] = {}
        self.ordered: dict[int, int | None] = {}
        self.trained: dict[int, int] = {}
        self.closed: set[int] = set()
        self.stopping: set[int] = set()
        self.events: list[tuple[Any, ...]] = []
        self.actions: list[list[Action]] = []
        self.problems: dict[str, list[str]] = defaultdict(list)
        self.progress = 0.0
        self.batches: Counter[int] = Counter()
        self._lengths: dict[int, float] = {}
        self.report("start")

    def report(self, event: str, *arguments: Any) -> None:
        """Report an event to the method, and carry out its actions."""
        if arguments and event != "on_report":
            request_id = arguments[0]
            length = self.ordered.pop(request_id)
            if event == "on_exit":
                self.closed.add(request_id)
                self.stopping.discard(request_id)
            else:
                self.trained[request_id] = length or 0
        self.events.append((event, *arguments))
        self.actions.append(list(getattr(self.method, event)(*arguments)))
        for action in self.actions[-1]:
            if not self._problem(action):
                self._carry_out(action)

    def step(self, rng: random.Random, exits: Exits, metrics: Sequence[float] = ()) -> None:
        """Report a random result of a random trial.

        Args:
            rng: random number generator.
            exits: probabilities with which the order ends with ``on_exit``.
            metrics: metrics to choose from. By default random ones, some of which are equal or ``WORST``.
        """
        request_id = rng.choice(list(self.ordered))
        if self.method.takes_reports and request_id not in self.stopping:
            self.batches[request_id] += 1
            self.report(
                "on_report", request_id, self.batches[request_id], {"loss": rng.random()}, 1e9 + len(self.events)
            )
        if request_id in self.stopping:
            self.report("on_exit", request_id, "stopped")
            return
        [reason] = rng.choices(["", *exits], [1 - sum(exits.values()), *exits.values()])
        if reason:
            self.report("on_exit", request_id, reason)
        else:
            metric = rng.choice(metrics or (rng.random(), round(rng.random(), 1), WORST))
            self.report("on_validation", request_id, self.ordered[request_id], metric)

    def watch(self, rng: random.Random) -> None:
        """Let all trials train a little, and ask the method for its progress."""
        for request_id, length in self.ordered.items():
            if length:
                reached = max(self._lengths.get(request_id, 0), rng.uniform(0, length))
                self._lengths[request_id] = reached
        given = dict(self._lengths)
        progress = self.method.progress(given)
        if given != self._lengths:
            self.problems["arguments"].append("progress() changed its argument `lengths`")
        if not self.progress - 1e-9 <= progress <= 1:
            self.problems["progress"].append(f"{progress} after {self.progress}; expected no less, and at most 1")
        self.progress = progress

    def play(self, exits: Exits, *, most_events: int, metrics: Sequence[float] = (), seed: int = 0) -> None:
        """Play on until no trial trains, or until there were too many events, with the arguments of `play_search`."""
        rng = random.Random(seed)  # noqa: S311
        self.watch(rng)
        while self.ordered and len(self.events) < most_events:
            self.step(rng, exits, metrics)
            self.watch(rng)

    def transcript(self) -> list[Any]:
        """Return all events and actions as JSON-compatible values."""
        return [
            [list(event), [action_to_json(action) for action in actions]]
            for event, actions in zip(self.events, self.actions, strict=True)
        ]

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Create):
            self.created[action.request_id] = action
        elif isinstance(action, Close):
            (self.stopping if action.request_id in self.ordered else self.closed).add(action.request_id)
        else:
            self.ordered[action.request_id] = action.length

    def _problem(self, action: Action) -> bool:
        """Note what is wrong with an action, and return whether anything is."""
        aspect, text = self._wrong(action)
        if text:
            self.problems[aspect].append(f"{action} after {self.events[-1]}: {text}")
        return bool(text)

    def _wrong(self, action: Action) -> tuple[str, str]:
        trial = action.request_id
        if isinstance(action, Create):
            if trial != len(self.created):
                return "request_id", f"expected the request id {len(self.created)}"
            unknown = action.source is not None and action.source not in self.created
            return "order", "the source does not exist" if unknown else ""
        if trial not in self.created:
            return "order", "the trial was not created"
        if trial in self.closed | self.stopping:
            return "order", "the trial has ended or was closed"
        if trial in self.ordered and not isinstance(action, Close):
            return "order", "the trial has not finished its previous order"
        if isinstance(action, Close) or action.length is None:
            return "", ""
        longer = type(action.length) is int and action.length > self.trained.get(trial, 0)
        return "length", "" if longer else f"expected an integer > {self.trained.get(trial, 0)}"


def play_search(
    method: SearchMethod, exits: Exits, *, most_events: int, metrics: Sequence[float] = (), seed: int = 0
) -> SearchPlayer:
    """Play a search until no trial trains, or until there were too many events.

    Args:
        method: the search method, which has been opened and not started.
        exits: probabilities with which orders end with ``on_exit``, by reason.
        most_events: maximum number of events.
        metrics: metrics to choose from, as in `SearchPlayer.step`.
        seed: seed of the results.
    """
    player = SearchPlayer(method)
    player.play(exits, most_events=most_events, metrics=metrics, seed=seed)
    return player


def _main() -> None:
    """Play the searches that stdin names some days later, and print their transcripts."""
    transcripts, clock = [], time.time
    time.time = lambda: clock() + 86400 * int(sys.argv[1])  # for plugins, which are imported afterwards
    for config, context_dir, exits, most_events in json.load(sys.stdin):
        with open_search_method(parse_config(config), Path(context_dir)) as method:
            transcripts.append(play_search(method, exits, most_events=most_events).transcript())
    print(json.dumps(transcripts))  # noqa: T201


if __name__ == "__main__":
    _main()
