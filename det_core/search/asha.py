"""Asynchronous successive halving in one bracket, or in several that differ in how early they stop trials."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from typing_extensions import Self

from det_core.config import Block, Count, Flag, Number, Positive, PositiveLength
from det_core.interfaces.search_method import INVALID_HP, Action, Close, Create, SearchMethod, Train
from det_core.search._bracket_sizes import (
    count_max_rungs,
    count_min_rungs,
    rung_lengths,
    starting_trials_per_bracket,
    trials_per_bracket,
)
from det_core.search._rungs import PROMOTION, STOP_ONCE, Bracket
from det_core.search.hyperparameter_sampling import MAX_AT_ONCE, REPLACED_PER_TRIAL, HyperparameterSampler

_RungCount = Annotated[Positive, Field(le=100)]
"""Type of a number of rungs, at which powers of the divisor are still numbers."""


class HalvingConfig(Block):
    """Options of both methods."""

    max_length: PositiveLength = Field(examples=[{"epochs": 16}])
    """Length of the last rung."""
    max_trials: Positive | None = Field(default=None, examples=[64], json_schema_extra={"unit": "trials"})
    """Number of trials of the search."""
    budget: PositiveLength | None = Field(default=None, examples=[{"epochs": 200}])
    """Total length of all trials. Release 0.12 had it instead of ``max_trials``."""
    divisor: Annotated[Number, Field(gt=1, le=1000)] = Field(
        default=4.0, examples=[3], json_schema_extra={"unit": "factor"}
    )
    """Factor between the lengths of two rungs. Of the results of a rung, 1 / divisor are promoted."""
    max_concurrent_trials: Count = Field(default=16, examples=[8], json_schema_extra={"unit": "trials"})
    """Maximum number of trials at once. With 0, async_halving starts with enough trials for one of them to reach the
    last rung, and each bracket of adaptive_asha with as many as the last bracket has, but at least ``divisor``."""
    stop_once: Flag = False
    """Whether a trial ends at the first rung where it is not among the best, without waiting for other results."""

    @model_validator(mode="after")
    def _says_how_many(self) -> Self:
        if self.budget is None and self.max_trials is None:
            missing = InitErrorDetails(type="missing", loc=("max_trials",), input={})
            raise ValidationError.from_exception_data(type(self).__name__, [missing])
        if self.budget and (self.max_trials or self.budget.unit != self.max_length.unit):
            message = "expected either max_trials, or a budget in the unit of max_length; correct or remove the budget"
            raise PydanticCustomError("conflict", message)
        return self

    @abstractmethod
    def rungs(self, max_trials: int) -> list[int]:
        """Return the number of rungs of each bracket, in decreasing order."""

    @abstractmethod
    def unlimited_start(self, brackets: Sequence[Bracket]) -> int:
        """Return the number of trials that each bracket starts with if ``max_concurrent_trials`` is 0."""

    def trials(self) -> int:
        """Return the number of trials of the search, which is either given or follows from the budget."""
        if self.max_trials or not self.budget:
            return self.max_trials or 0
        budget = self.budget.value
        return max(bisect(range(1, budget + 1), budget, key=self._work), 1)

    def brackets(self, max_trials: int) -> list[Bracket]:
        """Return the brackets for a number of trials in all."""
        rungs = self.rungs(max_trials)
        rule = STOP_ONCE if self.stop_once else PROMOTION
        return [
            Bracket(rung_lengths(self.max_length.value, count, self.divisor), trials, self.divisor, rule)
            for count, trials in zip(rungs, trials_per_bracket(max_trials, rungs, self.divisor), strict=False)
        ]

    def _work(self, max_trials: int) -> int:
        """Return the expected total length of a number of trials."""
        return sum(bracket.work({})[1] for bracket in self.brackets(max_trials))


class AsyncHalvingConfig(HalvingConfig):
    """Options of asynchronous halving in one bracket."""

    num_rungs: _RungCount = Field(examples=[4], json_schema_extra={"unit": "rungs"})
    """Number of rungs."""

    def rungs(self, max_trials: int) -> list[int]:
        return [self.num_rungs]

    def unlimited_start(self, brackets: Sequence[Bracket]) -> int:
        return int(self.divisor ** (len(brackets[0].rungs) - 1))


class AdaptiveAshaConfig(HalvingConfig):
    """Options of asynchronous halving in several brackets."""

    mode: Literal["standard", "aggressive", "conservative"] = "standard"
    """Number of brackets. An aggressive search has one, which stops trials early. A conservative one has the most."""
    max_rungs: _RungCount = Field(default=5, examples=[4], json_schema_extra={"unit": "rungs"})
    """Maximum number of rungs of a bracket."""
    bracket_rungs: Annotated[tuple[_RungCount, ...], Field(max_length=100)] = Field(
        default=(), examples=[[3, 2]], json_schema_extra={"unit": "rungs"}
    )
    """Number of rungs of each bracket, which overrides mode and max_rungs."""

    def rungs(self, max_trials: int) -> list[int]:
        if self.bracket_rungs:
            return sorted(self.bracket_rungs, reverse=True)
        most = count_max_rungs(
            self.max_rungs, max_length=self.max_length.value, max_trials=max_trials, divisor=self.divisor
        )
        return list(range(most, count_min_rungs(self.mode, most) - 1, -1))

    def unlimited_start(self, brackets: Sequence[Bracket]) -> int:
        return max(brackets[-1].trials, int(self.divisor))


class AsyncHalvingSearch(SearchMethod):
    """Search in which trials are promoted from rung to rung of their bracket.

    Whenever a trial ends, its slot goes to the best trial that can be promoted, else to a new one. Those of the same
    bracket come first. A trial that has failed counts as the worst, and fails again wherever it is promoted. With
    ``stop_once``, it is not promoted. A trial with invalid hyperparameters is forgotten and replaced.

    Attributes:
        brackets: the brackets, the one with the most rungs first.
    """

    def __init__(self, config: HalvingConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self._hparams = HyperparameterSampler(hyperparameters, seed)
        self._total = config.trials()
        self.brackets = config.brackets(self._total)
        self._shares = starting_trials_per_bracket(
            min(config.max_concurrent_trials, MAX_AT_ONCE),
            [bracket.trials for bracket in self.brackets],
            min(config.unlimited_start(self.brackets), MAX_AT_ONCE),
        )
        self._at_once = sum(self._shares)
        self._bracket_of: list[int] = []
        """Index of the bracket of each trial."""
        self._training: set[int] = set()
        self._failed: set[int] = set()
        self._replaced = 0

    def start(self) -> Sequence[Action]:
        starts = [min(share, bracket.trials) for share, bracket in zip(self._shares, self.brackets, strict=True)]
        first = [action for index, count in enumerate(starts) for _ in range(count) for action in self._create(index)]
        return [*first, *self._fill(0)]

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        self.brackets[self._bracket_of[request_id]].report(request_id, metric)
        return self._continue(request_id)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        if request_id not in self._training:  # it waited in a rung
            self._failed.add(request_id)
            return []
        if reason != INVALID_HP or self._replaced >= REPLACED_PER_TRIAL * self._total:
            self._failed.add(request_id)
            self.brackets[self._bracket_of[request_id]].fail(request_id)
        else:
            self._replaced += 1
            self.brackets[self._bracket_of[request_id]].replace(request_id)
        return self._continue(request_id)

    def progress(self, lengths: Mapping[int, float]) -> float:
        if self._bracket_of and not self._training:
            return 1.0
        work = [bracket.work(lengths) for bracket in self.brackets]
        share = sum(done for done, _ in work) / sum(expected for _, expected in work)
        return min(share, 0.99)  # more trials may be promoted than expected

    def outline(self) -> Sequence[str]:
        return [
            f"bracket {number}: rungs at {', '.join(str(rung.length) for rung in bracket.rungs)}; "
            f"{' → '.join(map(str, bracket.expected))} trials"
            for number, bracket in enumerate(self.brackets, 1)
        ]

    def state(self) -> Any:
        return {
            "bracket_of": list(self._bracket_of),
            "training": sorted(self._training),
            "failed": sorted(self._failed),
            "replaced": self._replaced,
            "brackets": [bracket.state() for bracket in self.brackets],
        }

    def restore(self, state: Any) -> None:
        self._bracket_of = list(state["bracket_of"])
        self._training, self._failed = set(state["training"]), set(state["failed"])
        self._replaced = state["replaced"]
        for bracket, one in zip(self.brackets, state["brackets"], strict=True):
            bracket.restore(one)

    def _continue(self, request_id: int) -> Sequence[Action]:
        """Return actions for the slot of a trial that no longer trains."""
        self._training.discard(request_id)
        return [*self._fill(self._bracket_of[request_id]), *self._close()]

    def _fill(self, first: int) -> Iterator[Action]:
        """Yield actions for the free slots, first of the bracket with the index ``first``."""
        order = [*range(first, len(self.brackets)), *range(first)]
        while len(self._training) < self._at_once:
            work = next(filter(None, map(self._work, order)), None)
            if work is None:
                return
            yield from work

    def _work(self, index: int) -> Sequence[Action]:
        """Return actions for one trial of the bracket that is promoted or new, or none if it has neither."""
        bracket = self.brackets[index]
        while promoted := bracket.promote():
            request_id, length = promoted
            if request_id not in self._failed:
                self._training.add(request_id)
                return [Train(request_id, length)]
            bracket.fail(request_id)
        return self._create(index) if bracket.left else []

    def _create(self, index: int) -> Sequence[Action]:
        request_id = len(self._bracket_of)
        self._bracket_of.append(index)
        self._training.add(request_id)
        length = self.brackets[index].enter(request_id)
        return [Create(request_id, self._hparams(request_id)), Train(request_id, length)]

    def _close(self) -> Iterator[Action]:
        for bracket in self.brackets:
            yield from (Close(request_id) for request_id in bracket.close() if request_id not in self._failed)


AdaptiveAshaSearch = AsyncHalvingSearch
"""Search with the brackets of `AdaptiveAshaConfig`."""
