"""States that recurrent layers with ``stateful=True`` carry from batch to batch, which are no weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


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

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the states after the block."""
        state = self.state()
        try:
            yield
        finally:
            self.load(state)
