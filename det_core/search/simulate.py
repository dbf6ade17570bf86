"""A search played through without training anything."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_core.interfaces.search_method import Action, Create, SearchMethod, Train


@dataclass(frozen=True)
class Outcome:
    """What a trial came to at the end of an order to train.

    Attributes:
        seconds: how long it took.
        metric: finite, smaller is better.
        exit: the reason why the trial ended by itself instead, or "".
    """

    seconds: float
    metric: float
    exit: str = ""


@dataclass(frozen=True)
class Result:
    """An order to train that was carried out.

    Attributes:
        time: the second of the simulation.
        at_once: how many were under way.
    """

    time: float
    at_once: int
    request_id: int
    length: int | None
    outcome: Outcome


Training = Callable[[int, Mapping[str, Any], int, int | None], Outcome]
"""(trial, hyperparameters, length trained before, length to train to) -> what comes of it."""


def simulate(method: SearchMethod, train: Training, slots: int) -> Iterator[Result]:
    """Carry out what the method asks for, ``slots`` trials at a time, and tell it the outcomes."""
    hparams: dict[int, Mapping[str, Any]] = {}
    trained: dict[int, int] = {}
    waiting: deque[Train] = deque()
    running: list[tuple[float, int, Train, Outcome]] = []
    now, started = 0.0, 0

    def take(actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Create):
                hparams[action.request_id] = action.hparams
            elif isinstance(action, Train):
                waiting.append(action)

    take(method.start())
    while waiting or running:
        while waiting and len(running) < slots:
            order = waiting.popleft()
            trial = order.request_id
            outcome = train(trial, hparams[trial], trained.get(trial, 0), order.length)
            heapq.heappush(running, (now + outcome.seconds, started, order, outcome))
            started += 1
        at_once = len(running)
        now, _, order, outcome = heapq.heappop(running)
        trained[order.request_id] = order.length or 0
        yield Result(now, at_once, order.request_id, order.length, outcome)
        if outcome.exit:
            take(method.on_exit(order.request_id, outcome.exit))
        else:
            take(method.on_validation(order.request_id, order.length, outcome.metric))
