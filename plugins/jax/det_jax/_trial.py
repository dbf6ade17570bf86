"""Base class of trials."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from det_core.trial import Trial, TrialContext
from det_jax._data import Arrays


class JaxTrial(Trial):
    """Base class for trials that train with functions of JAX::

        class MyTrial(JaxTrial):
            def initial_state(self, rng):
                params = {"kernel": jax.random.normal(rng, (64, 10)), "bias": jnp.zeros(10)}
                return params, self.optimizer.init(params)

            def train_step(self, state, batch, rng):
                params, optimizer_state = state
                loss, gradients = jax.value_and_grad(loss_of)(params, batch)
                updates, optimizer_state = self.optimizer.update(gradients, optimizer_state, params)
                return (optax.apply_updates(params, updates), optimizer_state), {"loss": loss}

            def evaluate_step(self, state, batch, rng):
                params, _ = state
                return {"validation_loss": loss_of(params, batch)}

            def build_training_data_loader(self):
                return det_jax.Arrays((images, labels))

            def build_validation_data_loader(self):
                return det_jax.Arrays((other_images, other_labels))

    det compiles both steps with ``jax.jit``. Values that change in training are in the state, because a compiled step
    contains all others as constants.
    """

    trial_context_class = TrialContext

    def __init__(self, context: TrialContext) -> None:
        self.context = context
        """The context that the trial was made with."""

    @abstractmethod
    def initial_state(self, rng: jax.Array) -> tuple[Any, ...]:
        """Return the state before the first batch, as a tuple or named tuple of pytrees of arrays.

        The first part is the weights, which are all that another trial takes from a checkpoint. The other parts are the
        state of the optimizer and whatever else changes in training. Parts may be or contain ``flax.nnx`` objects, such
        as ``(model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param))``.

        Args:
            rng: key that depends on the trial's seed.
        """

    @abstractmethod
    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> tuple[Any, Mapping[str, Any]]:
        """Train one batch, and return the new state and the metrics. Compiled by det.

        Args:
            state: state as `initial_state` returns it. ``flax.nnx`` objects are changed in place and returned.
            batch: batch of the training data.
            rng: key that depends on the trial's seed and on the number of the batch.

        Returns:
            A state with the same structure, shapes and dtypes, and the metrics as real numbers or arrays of them.
        """

    @abstractmethod
    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> Mapping[str, Any]:
        """Return the metrics of a validation batch, which det averages over the records. Compiled by det.

        Args:
            state: state of the training. Changes of ``flax.nnx`` objects, such as ``model.eval()``, do not affect it.
            batch: batch of the validation data.
            rng: key that depends on the trial's seed and on the number of the batch.
        """

    @abstractmethod
    def build_training_data_loader(self) -> Arrays | Iterable[Any]:
        """Return the training data. det calls this once, after `initial_state`.

        Returns:
            `Arrays`, whose records det shuffles for each epoch; or a sequence of batches, whose order det shuffles; or
            another iterable, which yields the batches of an epoch whenever it is iterated. If it has ``set_epoch``, det
            calls ``set_epoch(epoch)`` before. A batch is a pytree of arrays.
        """

    @abstractmethod
    def build_validation_data_loader(self) -> Arrays | Iterable[Any]:
        """Return the validation data in the same forms. Every validation uses all of it, in order."""
