"""Population based training, in which variations of the best trials replace the worst ones after every round.

After Jaderberg et al., "Population Based Training of Neural Networks" (arXiv 1711.09846).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from det_core.config import Block, Number, Positive, PositiveLength, explore_hyperparameters
from det_core.interfaces.search_method import INVALID_HP, WORST, Action, Close, Create, SearchMethod, Train
from det_core.search.hyperparameter_sampling import (
    MAX_AT_ONCE,
    REPLACED_PER_TRIAL,
    HyperparameterSampler,
    seeded_generator,
)

_Fraction = Annotated[Number, Field(ge=0, le=1)]


class ReplaceFunction(Block):
    """Options for the replacement of trials."""

    truncate_fraction: Annotated[Number, Field(ge=0, le=0.5)] = Field(
        examples=[0.2], json_schema_extra={"unit": "fraction"}
    )
    """Fraction of the population that is replaced after each round."""


class ExploreFunction(Block):
    """Options for the variation of hyperparameters."""

    resample_probability: _Fraction = Field(examples=[0.2], json_schema_extra={"unit": "probability"})
    """Probability that a hyperparameter is sampled anew."""
    perturb_factor: _Fraction = Field(examples=[0.2], json_schema_extra={"unit": "factor"})
    """Other numbers are multiplied by 1 plus or minus this factor."""


class PbtConfig(Block):
    """Options of population based training."""

    population_size: Annotated[Positive, Field(le=MAX_AT_ONCE)] = Field(
        examples=[20], json_schema_extra={"unit": "trials"}
    )
    """Number of trials per round."""
    num_rounds: Positive = Field(examples=[10], json_schema_extra={"unit": "rounds"})
    """Number of rounds."""
    length_per_round: PositiveLength = Field(examples=[{"epochs": 1}])
    """Length for which each trial trains per round."""
    replace_function: ReplaceFunction
    """Replacement of trials after each round."""
    explore_function: ExploreFunction
    """Variation of the hyperparameters of new trials."""

    @property
    def unit(self) -> Any:
        """Unit of the lengths of trials."""
        return self.length_per_round.unit


class PbtSearch(SearchMethod):
    """Search with a population of trials that trains in rounds.

    A trial that has failed counts as the worst until it is replaced. A new trial with invalid hyperparameters is
    replaced by another variation of the same trial.
    """

    def __init__(self, config: PbtConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self._config, self._space, self._seed = config, hyperparameters, seed
        self._sampled = HyperparameterSampler(hyperparameters, seed)
        self._origins: list[int | None] = []
        """For each trial, the trial that it is a variation of."""
        self._hparams: list[Mapping[str, Any]] = []
        """For each trial, its hyperparameters, which follow from the origins."""
        self._rounds: list[int] = []
        """For each trial, the number of rounds that it has trained."""
        self._population: list[int] = []
        self._results: dict[int, float] = {}
        """Metrics of this round, by trial."""
        self._failed: set[int] = set()
        self._round = 0
        self._replaced = 0

    def start(self) -> Sequence[Action]:
        return [action for _ in range(self._config.population_size) for action in self._create(None)]

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        self._rounds[request_id] += 1
        return self._record(request_id, metric)

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        if request_id in self._results:  # it waited for the others
            self._failed.add(request_id)
            return []
        limit = REPLACED_PER_TRIAL * self._config.population_size
        if reason == INVALID_HP and not self._rounds[request_id] and self._replaced < limit:
            self._replaced += 1
            self._population.remove(request_id)
            return self._create(self._origins[request_id])
        self._failed.add(request_id)
        return self._record(request_id, WORST)

    def progress(self, lengths: Mapping[int, float]) -> float:
        part = len(self._results) / len(self._population) if self._population else 0.0
        return (self._round + part) / self._config.num_rounds

    def outline(self) -> Sequence[str]:
        gone = self._truncated
        return [f"{self._config.num_rounds} rounds; after each but the last, new trials replace the worst {gone}"]

    def state(self) -> Any:
        return {
            "origins": list(self._origins),
            "rounds": list(self._rounds),
            "population": list(self._population),
            "results": list(self._results.items()),
            "failed": sorted(self._failed),
            "round": self._round,
            "replaced": self._replaced,
        }

    def restore(self, state: Any) -> None:
        self._origins, self._rounds = list(state["origins"]), list(state["rounds"])
        self._hparams = []
        for origin in self._origins:
            self._hparams.append(self._vary(origin))
        self._population, self._results = list(state["population"]), dict(state["results"])
        self._failed, self._round, self._replaced = set(state["failed"]), state["round"], state["replaced"]

    @property
    def _truncated(self) -> int:
        config = self._config
        return int(config.replace_function.truncate_fraction * config.population_size)

    def _record(self, request_id: int, metric: float) -> Sequence[Action]:
        self._results[request_id] = metric
        actions: list[Action] = []
        while self._population and len(self._results) == len(self._population):
            actions += self._next_round()
        return actions

    def _next_round(self) -> Iterator[Action]:
        self._round += 1
        ranked = sorted(self._population, key=lambda trial: (self._results[trial], trial))
        stay = len(ranked) - self._truncated if self._round < self._config.num_rounds else 0
        self._population, gone = ranked[:stay], ranked[stay:]
        self._results = {trial: WORST for trial in self._population if trial in self._failed}
        training = [trial for trial in self._population if trial not in self._failed]
        yield from (Close(trial) for trial in gone if trial not in self._failed)
        if self._population:
            # New trials come first, because they start from the current checkpoints of their origins.
            for place in range(len(gone)):
                yield from self._create(ranked[place] if ranked[place] not in self._failed else None)
        yield from map(self._train, training)

    def _create(self, origin: int | None) -> Sequence[Action]:
        request_id = len(self._origins)
        self._hparams.append(self._vary(origin))
        self._origins.append(origin)
        self._rounds.append(0)
        self._population.append(request_id)
        return [Create(request_id, self._hparams[request_id], origin), self._train(request_id)]

    def _train(self, request_id: int) -> Action:
        return Train(request_id, (self._rounds[request_id] + 1) * self._config.length_per_round.value)

    def _vary(self, origin: int | None) -> Mapping[str, Any]:
        """Return the hyperparameters of the next trial."""
        request_id = len(self._hparams)
        if origin is None:
            return self._sampled(request_id)
        return explore_hyperparameters(
            self._space,
            self._hparams[origin],
            seeded_generator(self._seed, request_id),
            **self._config.explore_function.model_dump(),
        )
