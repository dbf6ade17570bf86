"""Search method plugin in one file, which tries the points of a Halton sequence.

They cover the space more evenly than random ones. Install it with ``pip install ./examples/search_method_plugin`` and
select it in a config::

    searcher:
      name: halton
      metric: validation_loss
      max_length: {epochs: 4}
      max_trials: 16
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import PydanticCustomError

import det_core
from det_core.config import PositiveLength, choose_hyperparameters
from det_core.interfaces.search_method import INVALID_HP, Action, Close, Create, SearchMethod, Train
from det_core.specs import SearchMethodSpec

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


@det_core.hookimpl
def det_search_methods() -> Iterator[SearchMethodSpec]:
    yield SearchMethodSpec(name="halton", target="det_halton:Halton", config_model="det_halton:HaltonConfig")


class HaltonConfig(BaseModel):
    max_length: PositiveLength
    """Length of each trial."""
    max_trials: int = Field(ge=1)
    """Number of trials."""
    max_concurrent_trials: int = Field(default=16, ge=1)
    """Maximum number of trials at once."""

    def check_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> None:
        """Raise an error of pydantic if there are more ranges than primes."""
        if (ranges := count_ranges(hyperparameters)) > len(PRIMES):
            message = "expected at most {most} ranges, but there are {ranges}; fix some values, or use `name: random`"
            raise PydanticCustomError("halton", message, {"most": len(PRIMES), "ranges": ranges})


class Halton(SearchMethod):
    """Search that trains each trial once, to ``max_length``. A trial with invalid hyperparameters is replaced."""

    def __init__(self, config: HaltonConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.config, self.space = config, hyperparameters
        rng = random.Random(seed)
        self.shifts = [rng.random() for _ in PRIMES]
        self.total = config.max_trials
        self.created = self.ended = 0

    def start(self) -> Sequence[Action]:
        return [action for _ in range(self.config.max_concurrent_trials) for action in self.next_trial()]

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        self.ended += 1
        return [Close(request_id), *self.next_trial()]

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self.ended += 1
        if reason == INVALID_HP and self.total < 10 * self.config.max_trials:  # a search must end
            self.total += 1
        return self.next_trial()

    def progress(self, lengths: Mapping[int, float]) -> float:
        return self.ended / self.total

    def next_trial(self) -> Sequence[Action]:
        if self.created == self.total:
            return []
        trial = self.created
        self.created += 1
        point = [(halton(trial + 1, prime) + shift) % 1 for prime, shift in zip(PRIMES, self.shifts, strict=True)]
        return [Create(trial, place(self.space, iter(point))), Train(trial, self.config.max_length.value)]


def count_ranges(choice: Any) -> int:
    """Return the maximum number of ranges that a trial has."""
    if isinstance(choice, Mapping):
        return sum(map(count_ranges, choice.values()))
    kind = getattr(choice, "type", "const")  # the items of a categorical are also values
    return (kind != "const") + (max(map(count_ranges, choice.vals)) if kind == "categorical" else 0)


def halton(number: int, prime: int) -> float:
    """Return the number with its digits mirrored at the point, in base ``prime``, from 0 to 1."""
    mirrored, scale = 0.0, 1.0
    while number:
        scale /= prime
        number, digit = divmod(number, prime)
        mirrored += digit * scale
    return mirrored


def place(space: Mapping[str, Any], point: Iterator[float]) -> dict[str, Any]:
    """Return the hyperparameters at a point, which has a coordinate from 0 to 1 for each range."""
    return choose_hyperparameters(space, lambda _, choice: value_at(choice, point))


def value_at(choice: Any, point: Iterator[float]) -> Any:
    if choice.type == "const":
        return choice.val
    share = next(point)
    if choice.type == "categorical":
        return int(share * len(choice.vals))
    if choice.type == "int":
        return choice.minval + int(share * (choice.maxval - choice.minval + 1))
    number = choice.minval + share * (choice.maxval - choice.minval)
    return choice.base**number if choice.type == "log" else number
