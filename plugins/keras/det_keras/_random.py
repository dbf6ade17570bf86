"""Random number generators of a model, TensorFlow, NumPy and Python."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager

from det_core.trial import random_generators
from det_core.trial.random_generators import derive_seed


def seed_all(seed: int) -> None:
    """Seed all generators, and make Keras's layers use generators whose state can be saved."""
    tf.keras.backend.experimental.enable_tf_random_generator()
    tf.keras.utils.set_random_seed(seed)


class Generators:
    """All random number generators in a process.

    This excludes ``tf.random.uniform`` and similar functions inside a compiled step, whose state cannot be saved.

    Args:
        model: the model, which must be built.
    """

    def __init__(self, model: tf.keras.Model) -> None:
        self._of_model = list(_generators(model))

    def state(self) -> dict[str, Any]:
        """Return the states of the generators as JSON-compatible values."""
        version, words, gauss = eager.context()._rng.getstate()
        return {
            **random_generators.get_generator_states(),
            "tensorflow": [version, list(words), gauss],
            "model": [one.state.numpy().tolist() for one in self._of_model],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the states that `state` returned.

        Raises:
            ValueError: the model has a different number of generators.
        """
        random_generators.set_generator_states(state)
        version, words, gauss = state["tensorflow"]
        eager.context()._rng.setstate((version, tuple(words), gauss))
        for one, own in zip(self._of_model, state["model"], strict=True):
            one.reset(own)

    def seed(self, seed: int) -> None:
        """Seed all generators."""
        random_generators.seed_generators(seed)
        eager.context()._rng = random.Random(seed)  # noqa: S311
        for index, one in enumerate(self._of_model):
            one.reset_from_seed(derive_seed(seed, index))

    def forked(self, seed: int) -> AbstractContextManager[None]:
        """Return a context in which all generators use this seed. Their previous state is restored at its end."""
        return random_generators.make_forked_context(self.state, self.seed, self.load)(seed)


def _generators(model: tf.keras.Model) -> Iterator[tf.random.Generator]:
    """Yield the generators of layers, which Keras does not save in checkpoints, and those in users' attributes."""
    for module in (model, *model.submodules):
        for value in vars(module).values():
            found = getattr(value, "_generator", value) if hasattr(value, "_rng_type") else value
            if isinstance(found, tf.random.Generator):
                yield found
