"""Check that in graphs and sessions, as Estimators use them, aggregated batches train like one large batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from det_tensorflow.backend import TensorFlowBackend
from det_tensorflow.optimizer import GradientExchange

v1 = tf.compat.v1
RECORDS = np.random.default_rng(3).random((24, 3)).astype("float32")
KINDS: dict[str, Callable[[], Any]] = {
    "v1": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: v1.train.AdamOptimizer(0.1),
    "legacy": lambda: tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9),
}


def update(optimizer: Any, loss: Any, weights: Any) -> Any:
    """Return the operation that trains one batch, as a model function makes it for this kind of optimizer."""
    step = v1.train.get_or_create_global_step()
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer.minimize(loss, global_step=step)
    optimizer.iterations = step
    return optimizer.get_updates(loss, [weights])[0]


def train(kind: str, size: int, aggregation: int, *, resource: bool) -> Any:
    """Return the weights after training on all records, and the number of updates."""
    with tf.Graph().as_default(), v1.Session() as session:
        records = v1.placeholder(tf.float32, [None, 3])
        weights = v1.get_variable("w", [3, 2], initializer=v1.initializers.ones(), use_resource=resource)
        optimizer = KINDS[kind]()
        options = {"aggregation": aggregation, "average_aggregated": True, "fp16_compression": False}
        exchange = GradientExchange(TensorFlowBackend(), "optimizer0", **options)
        exchange.through(optimizer)
        operation = update(optimizer, tf.reduce_mean((records @ weights - 0.3) ** 2), weights)
        saved = {variable.op.name for variable in v1.global_variables()}
        assert sum("det_aggregation" in name for name in saved) == (2 if aggregation > 1 else 0)
        sharing = exchange.share()
        session.run(v1.global_variables_initializer())
        for start in range(0, len(RECORDS), size):
            session.run(operation, {records: RECORDS[start : start + size]})
            session.run(sharing)  # changes nothing on one slot
        return session.run([weights, v1.train.get_global_step()])


if __name__ == "__main__":
    v1.disable_v2_behavior()
    for kind in KINDS:
        for resource in (False, True) if kind != "legacy" else (True,):
            (expected, updates), (weights, same) = (train(kind, *how, resource=resource) for how in ((6, 1), (2, 3)))
            np.testing.assert_allclose(weights, expected, rtol=1e-5)
            assert updates == same == 4
