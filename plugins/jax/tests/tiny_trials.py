"""Trials that use all state that a resume could get wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from det_jax import JaxTrial
from det_testing.framework import reach_point
from flax import nnx

RECORDS = 18


class Batches:
    """Sequence of batches with noise from NumPy's global generator."""

    def __init__(self, point: str, size: int) -> None:
        self._point, self._size = point, size

    def __len__(self) -> int:
        return RECORDS // self._size

    def __getitem__(self, number: int) -> Any:
        reach_point(self._point)
        records = np.arange(number * self._size, (number + 1) * self._size)
        inputs = np.stack([records / RECORDS, np.ones(self._size)], axis=1) + np.random.normal(0, 0.01)
        return {"inputs": inputs.astype(np.float32), "targets": records.astype(np.float32)}


class Stream:
    """Iterable of batches in an order from Python's global generator."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        for number in random.sample(range(len(self._batches)), len(self._batches)):
            yield self._batches[number]


class Tiny(JaxTrial):
    def build_training_data_loader(self) -> Any:
        return Batches("training", self.context.get_global_batch_size())

    def build_validation_data_loader(self) -> Any:
        return Batches("validation", self.context.get_global_batch_size())


class Functions(Tiny):
    """Plain functions, whose state also has a key, an average in bfloat16, and a number."""

    optimizer = optax.adam(0.05)

    def initial_state(self, rng: jax.Array) -> Any:
        weights = {"kernel": jax.random.normal(rng, (2,))}
        average = jax.tree.map(lambda array: array.astype(jnp.bfloat16), weights)
        return weights, self.optimizer.init(weights), {"key": jax.random.key(3), "average": average, "scale": 1.0}

    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        weights, moments, other = state
        key, noise = jax.random.split(other["key"])
        loss, gradients = jax.value_and_grad(self.loss)(weights, batch, jax.random.normal(rng) + other["scale"])
        updates, moments = self.optimizer.update(gradients, moments, weights)
        weights = optax.apply_updates(weights, updates)
        average = jax.tree.map(
            lambda old, new: old * 0.9 + new.astype(old.dtype) * jax.random.uniform(noise, dtype=old.dtype),
            other["average"],
            weights,
        )
        other = {"key": key, "average": average, "scale": other["scale"] * 0.99 + average["kernel"].mean() * 0.01}
        return (weights, moments, other), {"loss": loss, "records": batch["targets"]}

    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        return {"validation_loss": self.loss(state[0], batch, jax.random.normal(rng))}

    def loss(self, weights: Any, batch: Any, noise: Any) -> Any:
        return jnp.mean((batch["inputs"] @ weights["kernel"] + noise - batch["targets"]) ** 2)


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(2, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, inputs: Any) -> Any:
        return self.last(self.dropout(nnx.relu(self.norm(self.first(inputs)))))[:, 0]


class Objects(Tiny):
    """Model of Flax NNX with running means and generators of its own."""

    def initial_state(self, rng: jax.Array) -> Any:
        model = Network(nnx.Rngs(rng))
        return model, nnx.Optimizer(model, optax.sgd(0.001, momentum=0.9), wrt=nnx.Param)

    def train_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        model, optimizer = state
        loss, gradients = nnx.value_and_grad(self.loss)(model, batch)
        optimizer.update(model, gradients)
        return state, {"loss": loss, "records": batch["targets"]}

    def evaluate_step(self, state: Any, batch: Any, rng: jax.Array) -> Any:
        model, _ = state
        model.eval()
        return {"validation_loss": self.loss(model, batch)}

    @staticmethod
    def loss(model: Network, batch: Any) -> Any:
        return jnp.mean((model(batch["inputs"]) - batch["targets"]) ** 2)


class Streamed(Functions):
    def build_training_data_loader(self) -> Any:
        return Stream(super().build_training_data_loader())
