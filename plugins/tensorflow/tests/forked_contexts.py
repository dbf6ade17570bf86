"""Calls of all methods of a context in a forked child, for the tests of both frameworks."""

from __future__ import annotations

import tensorflow as tf
from det_tensorflow.context import TensorFlowTrialContext

from det_core import core
from tests.forked_child import call_in_child, ending_children

HPARAMS = {"global_batch_size": {"type": "const", "val": 4}, "rate": {"type": "const", "val": 0.1}}


def call_context_in_child(kind: type[TensorFlowTrialContext]) -> dict[str, str]:
    """Return what each method of a context of this kind, and of its ``experimental``, answered in a forked child."""
    arguments = {
        "dataset": tf.data.Dataset.range(3),
        "dataset_id": "digits",
        "dataset_version": "1",
        "metric": tf.constant(1.0),
        "model": tf.keras.Sequential([tf.keras.layers.Dense(1)]),
        "name": "rate",
        "optimizer": tf.keras.optimizers.legacy.SGD(1.0),
        "reducer": len,
        "shard": True,
        "stop_requested": True,
    }
    with ending_children(), core.init(config={"hyperparameters": HPARAMS}, quiet=True) as running:
        made = kind.from_core(running)
        return call_in_child({"context": made, "experimental": made.experimental}, arguments)
