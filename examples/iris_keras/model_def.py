"""Species of iris from four measurements, with a Keras model."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from det_keras import InputData, TFKerasTrial, callbacks
from sklearn.datasets import load_iris


class IrisTrial(TFKerasTrial):
    def build_model(self) -> tf.keras.Model:
        hidden, dropout = self.context.get_hparam("hidden"), self.context.get_hparam("dropout")
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [layers.Dense(hidden, activation="relu", input_shape=(4,)), layers.Dropout(dropout), layers.Dense(3)]
        )
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam(self.context.get_hparam("lr")))
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
        return model

    def build_training_data_loader(self) -> InputData:
        (measurements, species), _ = iris()
        dataset = tf.data.Dataset.from_tensor_slices((measurements, species))
        dataset = self.context.wrap_dataset(dataset)
        return dataset.shuffle(len(species)).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> InputData:
        _, validation = iris()
        return validation  # det splits arrays into batches

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=2)]


def iris() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return 110 flowers for training and 40 for validation, as standardized measurements and species from 0 to 2."""
    measurements, species = load_iris(return_X_y=True)
    scaled = ((measurements - measurements.mean(axis=0)) / measurements.std(axis=0)).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(species))
    training, validation = order[40:], order[:40]
    return (scaled[training], species[training]), (scaled[validation], species[validation])
