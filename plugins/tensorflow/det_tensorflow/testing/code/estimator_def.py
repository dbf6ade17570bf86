"""Estimator trial with exact metrics, computed by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from det_estimator import EstimatorTrial, EstimatorTrialContext
from det_tensorflow.testing.code.common import VALIDATION, SlotKiller, slot_initializer, training_dataset
from sklearn.metrics import log_loss, roc_auc_score

v1 = tf.compat.v1


class Trial(EstimatorTrial):
    """Binary classifier with one hidden layer."""

    def __init__(self, context: EstimatorTrialContext) -> None:
        self.context = context

    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(self.model)

    def model(self, features: Any, labels: Any, mode: str) -> Any:
        rank = self.context.distributed.rank
        hidden = v1.layers.dense(features, 8, tf.nn.tanh, kernel_initializer=slot_initializer(rank, 0))
        scores = v1.layers.dense(hidden, 1, kernel_initializer=slot_initializer(rank, 1))
        loss = v1.losses.sigmoid_cross_entropy(labels, scores)
        if mode == tf.estimator.ModeKeys.TRAIN:
            optimizer = self.context.wrap_optimizer(v1.train.MomentumOptimizer(0.5, 0.9))
            train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        values = {"labels": labels, "chances": tf.sigmoid(scores)}
        metrics = {"validation_loss": log_loss, "auc": roc_auc_score}
        ops = {name: self.context.make_metric(values, over_all(of), np.float64) for name, of in metrics.items()}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=ops)

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training, hooks=[Dying(SlotKiller(self.context.distributed.rank))])

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, steps=None)

    def training(self) -> tf.data.Dataset:
        return self.context.wrap_dataset(training_dataset()).batch(self.context.get_per_slot_batch_size())

    def validation(self) -> tf.data.Dataset:
        return self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(VALIDATION)).batch(2)


class Dying(tf.estimator.SessionRunHook):  # type: ignore[misc]
    """Hook that reports each batch to the trial's `SlotKiller`."""

    def __init__(self, fate: SlotKiller) -> None:
        self.fate = fate

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.fate.trained()


def over_all(metric: Callable[..., float]) -> Callable[[list[Any]], float]:
    """Return a reducer that computes a scikit-learn metric over the values of all batches."""

    def reduced(batches: list[Any]) -> float:
        return metric(*(np.concatenate([batch[name] for batch in batches]) for name in ("labels", "chances")))

    return reduced
