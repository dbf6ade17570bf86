"""Random choices of a search, which depend only on the experiment's seed and the number of the trial."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from det_core.config import sample_hyperparameters

MAX_AT_ONCE = 100_000
"""Maximum number of trials that a search creates before it waits for the end of one."""
REPLACED_PER_TRIAL = 10
"""Maximum number of replacements for invalid hyperparameters, per trial of the search, so that searches end."""


def seeded_generator(seed: int, *parts: int | str) -> random.Random:
    """Return a random number generator that depends only on the seed and the parts."""
    return random.Random(repr((seed, *parts)))  # noqa: S311


class HyperparameterSampler:
    """Sampler of the hyperparameters of trial 0, 1, 2, ..., which do not depend on the order of the calls.

    Args:
        space: the hyperparameters section of the config.
        seed: the experiment's seed.
    """

    def __init__(self, space: Mapping[str, Any], seed: int) -> None:
        self._space, self._seed = space, seed

    def __call__(self, request_id: int) -> dict[str, Any]:
        """Return the hyperparameters of a trial."""
        return sample_hyperparameters(self._space, seeded_generator(self._seed, request_id))
