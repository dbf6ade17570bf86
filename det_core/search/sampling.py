"""The random choices of a search, each a function of the experiment's seed and a trial's number alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from det_core.config import sample_hyperparameters

REPLACED_PER_TRIAL = 10
"""Trials with hyperparameters that cannot work are replaced, at most so many for each that was wanted: searches end."""


def generator(seed: int, *parts: int | str) -> random.Random:
    """A random number generator that depends on all the parts and on nothing else."""
    return random.Random(repr((seed, *parts)))  # noqa: S311


class Sampler:
    """Random hyperparameters of trial 0, 1, 2, ..., whatever the order in which they are asked for."""

    def __init__(self, space: Mapping[str, Any], seed: int) -> None:
        self._space, self._seed = space, seed

    def __call__(self, request_id: int) -> dict[str, Any]:
        return sample_hyperparameters(self._space, generator(self._seed, request_id))
