"""One trial, trained to the end."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from det_core.config import Block, PositiveLength, sample_hyperparameters
from det_core.interfaces.search_method import Action, Close, Create, SearchMethod, Train


class SingleConfig(Block):
    max_length: PositiveLength | None = None


class SingleSearch(SearchMethod):
    """Trains one trial to ``max_length``, with hyperparameters sampled from the experiment's seed."""

    def __init__(self, config: SingleConfig, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self._length = config.max_length.value if config.max_length else None
        self._hparams = sample_hyperparameters(hyperparameters, random.Random(seed))  # noqa: S311

    def start(self) -> Sequence[Action]:
        return [Create(0, self._hparams), Train(0, self._length)]

    def on_validation(self, request_id: int, length: int | None, metric: float) -> Sequence[Action]:
        return [Close(request_id)]

    def on_exit(self, request_id: int, reason: str) -> Sequence[Action]:
        return []
