"""Species of iris from four measurements, with an Estimator and a model function.

To train something else, replace `read_data` and the methods of the trial. det calls the methods, trains the Estimator,
and saves checkpoints. Read hyperparameters from the config, so that a search can change them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from det_estimator import EstimatorTrial

v1 = tf.compat.v1
SPECIES = ("setosa", "versicolor", "virginica")


class IrisTrial(EstimatorTrial):
    def build_estimator(self) -> Any:
        return tf.estimator.Estimator(self.model)

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training)

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, steps=None)

    def training(self) -> Any:
        (inputs, labels), _ = read_data()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(({"inputs": inputs}, labels)))
        return dataset.shuffle(len(labels)).batch(self.context.get_per_slot_batch_size())

    def validation(self) -> Any:
        _, (inputs, labels) = read_data()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(({"inputs": inputs}, labels)))
        return dataset.batch(self.context.get_per_slot_batch_size())

    def model(self, features: dict[str, Any], labels: Any, mode: str) -> Any:
        hidden = tf.keras.layers.Dense(self.context.get_hparam("hidden"), activation="relu")(features["inputs"])
        rate, training = self.context.get_hparam("dropout"), mode == tf.estimator.ModeKeys.TRAIN
        scores = tf.keras.layers.Dense(len(SPECIES))(tf.keras.layers.Dropout(rate)(hidden, training=training))
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"species": tf.argmax(scores, axis=1)})
        loss = v1.losses.sparse_softmax_cross_entropy(labels, scores)
        if training:
            optimizer = self.context.wrap_optimizer(v1.train.AdamOptimizer(self.context.get_hparam("lr")))
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        accuracy = v1.metrics.accuracy(labels, tf.argmax(scores, axis=1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})


def read_data() -> tuple[Any, Any]:
    """Return inputs and labels of 110 rows for training, and of 40 for validation."""
    with Path(__file__).with_name("iris.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]  # the first line has the names of the columns
    inputs = np.array([[float(cell) for cell in row[:4]] for row in rows], np.float32)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    labels = np.array([SPECIES.index(row[4]) for row in rows])
    return (inputs[40:], labels[40:]), (inputs[:40], labels[:40])
