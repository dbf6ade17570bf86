"""States that recurrent layers with ``stateful=True`` carry from batch to batch, which are no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import tensorflow as tf


@contextmanager
def restored_variables(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Restore the values of variables after the block, where they have changed."""
    values = [one.numpy() for one in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            if not np.array_equal(variable.numpy(), value):
                variable.assign(value)


class RecurrentStates:
    """States of all recurrent layers of a model. Each slot has its own, because it has its own batches.

    Args:
        model: the model, which must be built.
    """

    def __init__(self, model: tf.keras.Model) -> None:
        layers = (layer for layer in model.submodules if getattr(layer, "stateful", False))
        states = (state for layer in layers for state in tf.nest.flatten(getattr(layer, "states", None)))
        self._variables = [state for state in states if isinstance(state, tf.Variable)]

    def state(self) -> list[Any]:
        """Return the states as JSON-compatible values."""
        return [one.numpy().tolist() for one in self._variables]

    def load(self, state: Sequence[Any]) -> None:
        """Restore the states that `state` returned.

        Raises:
            ValueError: the model has other states.
        """
        for one, own in zip(self._variables, state, strict=True):
            one.assign(own)

    def kept(self) -> AbstractContextManager[None]:
        """Return a context that restores the states at its end."""
        return restored_variables(self._variables)
