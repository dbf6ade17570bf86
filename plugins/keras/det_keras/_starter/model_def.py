"""Species of iris from four measurements, with a Keras model.

To train something else, replace `read_data` and the methods of the trial. det calls the methods, trains the model as
``Model.fit`` does, and saves checkpoints. Read hyperparameters from the config, so that a search can change them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from det_keras import InputData, TFKerasTrial

SPECIES = ("setosa", "versicolor", "virginica")


class IrisTrial(TFKerasTrial):
    def build_model(self) -> tf.keras.Model:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Dense(hidden, activation="relu", input_shape=(4,)),
                layers.Dropout(dropout),
                layers.Dense(len(SPECIES)),
            ]
        )
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam(self.context.get_hparam("lr")))
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        return model

    def build_training_data_loader(self) -> InputData:
        (inputs, labels), _ = read_data()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices((inputs, labels)))
        return dataset.shuffle(len(labels)).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> InputData:
        _, validation = read_data()
        return validation  # det splits arrays into batches


def read_data() -> tuple[Any, Any]:
    """Return inputs and labels of 110 rows for training, and of 40 for validation."""
    with Path(__file__).with_name("iris.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]  # the first line has the names of the columns
    inputs = np.array([[float(cell) for cell in row[:4]] for row in rows], np.float32)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    labels = np.array([SPECIES.index(row[4]) for row in rows])
    return (inputs[40:], labels[40:]), (inputs[:40], labels[:40])
