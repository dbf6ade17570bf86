"""Searches with independent trials, which are a single one, random ones, or the points of a grid."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field
from pydantic_core import PydanticCustomError

from det_core.config import (
    Block,
    Count,
    Positive,
    PositiveLength,
    grid_axes,
    grid_points,
    sample_hyperparameters,
)
from det_core.interfaces.search_method import INVALID_HP, Action, Close, Create, SearchMethod, Train
from det_core.search.hyperparameter_sampling import MAX_AT_ONCE, REPLACED_PER_TRIAL, HyperparameterSampler

MAX_GRID = 2000
"""Maximum number of points of a grid."""


class SingleConfig(Block):
    """Options of a single trial."""

    max_length: PositiveLength | None = Field(default=None, examples=[{"epochs": 20}])
    """Length of each trial. Only a command may do without it, and then decides itself when to stop."""


class RandomConfig(SingleConfig):
    """Options of a random search."""

    max_trials: Positive = Field(examples=[16], json_schema_extra={"unit": "trials"})
    """Number of trials."""
    max_concurrent_trials: Count = Field(default=16, examples=[4], json_schema_extra={"unit": "trials"})
    """Maximum number of trials at once, or 0 for as many as a search can have, 100,000."""


class GridConfig(SingleConfig):
    """Options of a grid search."""

    max_concurrent_trials: Count = Field(default=16, examples=[4], json_schema_extra={"unit": "trials"})
    """Maximum number of trials at once, or 0 for as many as a search can have, 100,000."""

    def check_hyperparameters(self, hyperparameters: Mapping[str, Any]) -> None:
        """Raise an error of pydantic if the hyperparameters have no grid, or a grid with too many points."""
        if (size := math.prod(grid_axes(hyperparameters).values())) > MAX_GRID:
            raise PydanticCustomError(
                "grid",
                "expected at most {limit} points, but the grid has {size}; lower a count, or use `name: random`",
                {"limit": MAX_GRID, "size": str(size) if size < 1e18 else f"about 10 ** {math.log10(size):.0f}"},
            )


class IndependentSearch(SearchMethod):
    """Search that trains each of its trials to ``max_length``.

    Args:
        config: options with ``max_length``.
        hparams: function that returns the hyperparameters of trial 0, 1, 2, ...
        total: number of trials.
        at_once: maximum number of trials at once, or 0 for no limit.
    """

    def __init__(
        self, config: SingleConfig, hparams: Callable[[int], Mapping[str, Any]], *, total: int, at_once: int
    ) -> None:
        self._length = config.max_length.value if config.max_length else None
        self._hparams = hparams
        self._total = total
        self._at_once = min(at_once or total, total, MAX_AT_ONCE)
        self._created = 0
        self._ended: set[int] = set()
        self._replaced = 0

    def start(self) -> Sequence[Action]:
        return [action for _ in range(self._at_once) for action in self._next()]

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        self._ended.add(request_id)
        return [Close(request_id), *self._next()]

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        self._ended.add(request_id)
        return list(self._next())

    def progress(self, lengths: Mapping[int, float]) -> float:
        partly = {key: length for key, length in lengths.items() if key not in self._ended}
        parts = sum(min(length / self._length, 1) for length in partly.values()) if self._length else 0
        return min((len(self._ended) + parts) / self._total, 1.0)

    def state(self) -> Any:
        return {"created": self._created, "ended": sorted(self._ended), "replaced": self._replaced}

    def restore(self, state: Any) -> None:
        self._created, self._ended, self._replaced = state["created"], set(state["ended"]), state["replaced"]

    def _next(self) -> Iterator[Action]:
        request_id = self._created
        if request_id < self._total + self._replaced:
            self._created += 1
            yield Create(request_id, self._hparams(request_id))
            yield Train(request_id, self._length)


class SingleSearch(IndependentSearch):
    """Search with one trial, whose hyperparameters are sampled from the experiment's seed."""

    def __init__(self, config: SingleConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        # The same sampling as in `TrialContext.from_config` and in scripts without a runner.
        sampled = sample_hyperparameters(hyperparameters, random.Random(seed))  # noqa: S311
        super().__init__(config, lambda _: sampled, total=1, at_once=1)


class RandomSearch(IndependentSearch):
    """Search with ``max_trials`` random trials. A trial with invalid hyperparameters is replaced and does not count."""

    def __init__(self, config: RandomConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        sampler = HyperparameterSampler(hyperparameters, seed)
        super().__init__(config, sampler, total=config.max_trials, at_once=config.max_concurrent_trials)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        if reason == INVALID_HP and self._replaced < REPLACED_PER_TRIAL * self._total:
            self._replaced += 1
            return list(self._next())
        return super().on_exit(request_id, reason)


class GridSearch(IndependentSearch):
    """Search with a trial for every point of the grid, last point first, as in old experiments."""

    def __init__(self, config: GridConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        points = grid_points(hyperparameters)[::-1]
        super().__init__(config, points.__getitem__, total=len(points), at_once=config.max_concurrent_trials)
