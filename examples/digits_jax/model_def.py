"""Handwritten digits with a small network of Flax NNX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from det_jax import Arrays, JaxTrial
from flax import nnx
from sklearn.datasets import load_digits


class Network(nnx.Module):
    def __init__(self, hidden: int, dropout: float, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, hidden, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.last = nnx.Linear(hidden, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        scores: jax.Array = self.last(self.dropout(nnx.relu(self.first(images))))
        return scores


class DigitsTrial(JaxTrial):
    def initial_state(self, rng: jax.Array) -> tuple[Network, nnx.Optimizer[Network]]:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        model = Network(hidden, dropout, nnx.Rngs(rng))
        return model, nnx.Optimizer(model, optax.adam(self.context.get_hparam("lr")), wrt=nnx.Param)

    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        model, optimizer = state
        (loss, _), gradients = nnx.value_and_grad(self.loss, has_aux=True)(model, batch)
        optimizer.update(model, gradients)
        return state, {"loss": loss}

    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> dict[str, jax.Array]:
        model, _ = state
        model.eval()  # without dropout
        loss, accuracy = self.loss(model, batch)
        return {"validation_loss": loss, "accuracy": accuracy}

    def loss(self, model: Network, batch: Any) -> tuple[jax.Array, jax.Array]:
        images, labels = batch
        scores = model(images)
        loss = optax.losses.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
        return loss, jnp.mean(scores.argmax(axis=1) == labels)

    def build_training_data_loader(self) -> Arrays:
        images, labels = digits()
        return Arrays((images[360:], labels[360:]))

    def build_validation_data_loader(self) -> Arrays:
        images, labels = digits()
        return Arrays((images[:360], labels[:360]))


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return 1797 images, as 64 pixels from 0 to 1, and labels from 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order]
