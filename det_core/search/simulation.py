"""Simulation of a search without training."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_core.interfaces.search_method import Action, Create, SearchMethod, Train


@dataclass(frozen=True)
class SimulatedOutcome:
    """Outcome of a simulated order to train.

    Attributes:
        seconds: duration of the training.
        metric: the searcher metric, which is finite and smaller for better results.
        exit: the reason why the trial ended by itself, or "" if it has finished the order.
    """

    seconds: float
    metric: float
    exit: str = ""


@dataclass(frozen=True)
class SimulatedOrder:
    """Order to train that has ended in a simulation.

    Attributes:
        time: end of the order in simulated seconds.
        at_once: number of trials that were training.
        request_id: number of the trial.
        length: length that was ordered.
        outcome: the outcome.
    """

    time: float
    at_once: int
    request_id: int
    length: int | None
    outcome: SimulatedOutcome


SimulateTraining = Callable[[int, Mapping[str, Any], int, int | None], SimulatedOutcome]
"""Function of trial, hyperparameters, current length and ordered length that returns the outcome."""


def simulate_search(method: SearchMethod, train: SimulateTraining, slots: int) -> Iterator[SimulatedOrder]:
    """Run a search method against simulated trials.

    Args:
        method: the search method, which has been opened.
        train: function that simulates the training of a trial.
        slots: maximum number of trials at once.

    Yields:
        The orders to train in the order in which they end.
    """
    hparams: dict[int, Mapping[str, Any]] = {}
    trained: dict[int, int] = {}
    waiting: deque[Train] = deque()
    running: list[tuple[float, int, Train, SimulatedOutcome]] = []
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
        yield SimulatedOrder(now, at_once, order.request_id, order.length, outcome)
        if outcome.exit:
            take(method.on_exit(order.request_id, outcome.exit))
        else:
            take(method.on_validation(order.request_id, order.length, outcome.metric))
