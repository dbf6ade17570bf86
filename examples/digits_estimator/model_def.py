"""Handwritten digits with a custom model function, a metric over the whole validation set, and an export."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from det_estimator import EstimatorTrial
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

v1 = tf.compat.v1


class DigitsTrial(EstimatorTrial):
    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(self.model)

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training)

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, steps=None)

    def build_serving_input_receiver_fns(self) -> dict[str, Any]:
        images = {"images": v1.placeholder(tf.float32, (None, 64))}
        return {"raw": tf.estimator.export.build_raw_serving_input_receiver_fn(images)}

    def training(self) -> Any:
        (images, labels), _ = digits()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(({"images": images}, labels)))
        return dataset.shuffle(len(labels)).batch(self.context.get_per_slot_batch_size()).prefetch(1)

    def validation(self) -> Any:
        _, (images, labels) = digits()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(({"images": images}, labels)))
        return dataset.batch(120)

    def model(self, features: dict[str, Any], labels: Any, mode: str) -> Any:
        hidden = tf.keras.layers.Dense(self.context.get_hparam("hidden"), activation="relu")(features["images"])
        rate, training = self.context.get_hparam("dropout"), mode == tf.estimator.ModeKeys.TRAIN
        scores = tf.keras.layers.Dense(10)(tf.keras.layers.Dropout(rate)(hidden, training=training))
        predictions = {"probabilities": tf.nn.softmax(scores), "digit": tf.argmax(scores, axis=1)}
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions=predictions)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, scores)
        if training:
            optimizer = self.context.wrap_optimizer(v1.train.AdamOptimizer(self.context.get_hparam("lr")))
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        # The area under a curve is not a mean over batches. It needs all predictions at once.
        seen = {"probabilities": predictions["probabilities"], "labels": labels}
        metrics = {
            "accuracy": v1.metrics.accuracy(labels, predictions["digit"]),
            "auc": self.context.make_metric(seen, area_under_curve, np.float32),
        }
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)


def area_under_curve(batches: list[dict[str, Any]]) -> float:
    labels = np.concatenate([batch["labels"] for batch in batches])
    probabilities = np.concatenate([batch["probabilities"] for batch in batches])
    return float(roc_auc_score(labels, probabilities, multi_class="ovr"))


def digits() -> tuple[Any, Any]:
    """Return 1437 images for training and 360 for validation, as 64 pixels from 0 to 1 and labels from 0 to 9."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    return (images[360:], labels[360:]), (images[:360], labels[:360])
