"""The random number generators of a model, of TensorFlow and of Python, taken together."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from det_core.trial import generators
from det_core.trial.generators import derive_seed


def seed_all(seed: int) -> None:
    """Seed everything, and let Keras's layers draw from generators whose state can be saved."""
    tf.keras.backend.experimental.enable_tf_random_generator()
    tf.keras.utils.set_random_seed(seed)


class Generators:
    """All of them in a process whose model is built.

    What TensorFlow draws by ``tf.random.uniform`` and the like inside of a compiled step is not among them: its state
    is out of reach.
    """

    def __init__(self, model: tf.keras.Model) -> None:
        self._of_model = list(_generators(model))

    def state(self) -> dict[str, Any]:
        """In types that JSON has."""
        version, words, gauss = eager.context()._rng.getstate()
        return {
            **generators.rng_state(),
            "tensorflow": [version, list(words), gauss],
            "model": [one.state.numpy().tolist() for one in self._of_model],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` returned.

        Raises:
            ValueError: the model has other generators.
        """
        generators.set_rng_state(state)
        version, words, gauss = state["tensorflow"]
        eager.context()._rng.setstate((version, tuple(words), gauss))
        for one, own in zip(self._of_model, state["model"], strict=True):
            one.reset(own)

    def seed(self, seed: int) -> None:
        """Begin all of them anew."""
        generators.seed_all(seed)
        eager.context()._rng = random.Random(seed)  # noqa: S311
        for index, one in enumerate(self._of_model):
            one.reset_from_seed(derive_seed(seed, index))

    def forked(self, seed: int) -> AbstractContextManager[None]:
        """Run a block on generators seeded so; afterwards they go on as if it had not been."""
        return generators.forking(self.state, self.seed, self.load)(seed)


def _generators(model: tf.keras.Model) -> Iterator[tf.random.Generator]:
    """Those of layers, which Keras keeps out of checkpoints, and those that users made attributes."""
    for module in (model, *model.submodules):
        for value in vars(module).values():
            found = getattr(value, "_generator", value) if hasattr(value, "_rng_type") else value
            if isinstance(found, tf.random.Generator):
                yield found
