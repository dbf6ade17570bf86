"""What the trials of all frameworks share: records, and what befalls a slot, as ``FAIL="HOW RANK BATCHES"`` says."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import tensorflow as tf

RECORDS = 48
WIDTH = 3


def records(number: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features, and labels that they tell something about."""
    chance = np.random.default_rng(seed)
    features = chance.random((number, WIDTH), np.float32)
    return features, (features[:, :1] + 0.5 * chance.random((number, 1)) > 0.7).astype("float32")


VALIDATION = records(11, 4)
"""So many that two slots have six and five; batches are of two."""


def training() -> tf.data.Dataset:
    """Not yet shared out; the order is the same on all slots."""
    return tf.data.Dataset.from_tensor_slices(records(RECORDS, 3)).shuffle(RECORDS, seed=7)


def initializer(rank: int, layer: int) -> tf.keras.initializers.Initializer:
    """The chief's first weights count, so the others' shall not be the same."""
    return tf.keras.initializers.GlorotUniform(seed=10 * rank + layer)


class Fate:
    """Counts the batches of a run, until the one that kills this slot."""

    def __init__(self, rank: int) -> None:
        how, *when = os.environ.get("FAIL", "nothing").split()
        self._at = int(when[1]) if how == "kill" and when[0] == str(rank) else None
        self._batches = 0

    def trained(self) -> None:
        """A batch is done."""
        self._batches += 1
        if self._batches == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
