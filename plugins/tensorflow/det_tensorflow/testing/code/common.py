"""Data and failures shared by the trials of all frameworks. ``FAIL="HOW RANK BATCHES"`` makes a slot fail."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import tensorflow as tf

RECORDS = 48
WIDTH = 3


def records(number: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return random features, and labels that depend on them."""
    chance = np.random.default_rng(seed)
    features = chance.random((number, WIDTH), np.float32)
    return features, (features[:, :1] + 0.5 * chance.random((number, 1)) > 0.7).astype("float32")


VALIDATION = records(11, 4)
"""Eleven records, so that two slots have six and five. Batches have two."""


def training_dataset() -> tf.data.Dataset:
    """Return the whole training set, before sharding. Its order is the same on all slots."""
    return tf.data.Dataset.from_tensor_slices(records(RECORDS, 3)).shuffle(RECORDS, seed=7)


def slot_initializer(rank: int, layer: int) -> tf.keras.initializers.Initializer:
    """Return an initializer whose weights differ between slots, because only those of the chief must be used."""
    return tf.keras.initializers.GlorotUniform(seed=10 * rank + layer)


class SlotKiller:
    """Counter of the batches of a run, which kills this slot after the batch that ``FAIL`` names."""

    def __init__(self, rank: int) -> None:
        how, *when = os.environ.get("FAIL", "nothing").split()
        self._at = int(when[1]) if how == "kill" and when[0] == str(rank) else None
        self._batches = 0

    def trained(self) -> None:
        """Count a batch, and kill this process if it is the one that ``FAIL`` names."""
        self._batches += 1
        if self._batches == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
