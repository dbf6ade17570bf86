"""Compliance suite for frameworks, with a trial that uses every kind of state that a resume could lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_estimator import EstimatorTrial
from det_testing.framework import FrameworkCompliance, reach_point

v1 = tf.compat.v1
tf.config.experimental.enable_op_determinism()
INPUTS = np.arange(36, dtype=np.float32).reshape(18, 2) / 36


class Reached(v1.train.SessionRunHook):
    def __init__(self, point: str) -> None:
        self._point = point

    def before_run(self, run_context: Any) -> None:
        reach_point(self._point)


class Tiny(EstimatorTrial):
    """Batches of four, five per epoch, shuffled differently in each epoch."""

    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(self.model)

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training, hooks=[Reached("training")])

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, hooks=[Reached("validation")])

    def training(self) -> Any:
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices((INPUTS, np.arange(18))))
        return dataset.shuffle(18).batch(self.context.get_per_slot_batch_size()).prefetch(2)

    def validation(self) -> Any:
        return self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices((INPUTS, np.arange(18)))).batch(7)

    def model(self, features: Any, labels: Any, mode: str) -> Any:
        training = mode == tf.estimator.ModeKeys.TRAIN
        hidden = tf.keras.layers.Dense(8, activation="relu")(features)
        hidden = tf.keras.layers.Dropout(0.2)(hidden, training=training)
        noise = v1.py_func(lambda: np.float32(np.random.normal()), [], tf.float32)
        noise.set_shape([])
        errors = tf.keras.layers.Dense(1)(hidden)[:, 0] + 0.1 * noise - tf.reduce_sum(features, 1)
        loss = tf.reduce_mean(errors**2)
        if not training:
            metric = self.context.make_metric(errors, lambda found: np.mean(np.hstack(found) ** 2), np.float64)
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"validation_loss": metric})
        v1.summary.scalar("records", tf.reduce_sum(2**labels))
        _, mean = v1.metrics.mean(loss)
        v1.summary.scalar("running_mean", mean)
        optimizer = self.context.wrap_optimizer(v1.train.MomentumOptimizer(0.01, 0.9))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.integration
@pytest.mark.slow
class TestEstimator(FrameworkCompliance):
    plugin = "det_estimator.plugin"
    trial_class = Tiny

    def weights(self, path: Path) -> Any:
        return {name: value for name, value in read_tensors(path).items() if is_weight(name)}

    def replace_weights(self, path: Path, source: Path) -> None:
        mixed = {**read_tensors(path), **self.weights(source)}
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(
                tf.raw_ops.SaveV2(
                    prefix=tf.train.latest_checkpoint(str(path)),
                    tensor_names=list(mixed),
                    shape_and_slices=[""] * len(mixed),
                    tensors=list(mixed.values()),
                )
            )


def read_tensors(path: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


def is_weight(name: str) -> bool:
    return ("/kernel" in name or "/bias" in name) and "Momentum" not in name
