"""Keras trial with built-in metrics."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from det_keras import TFKerasTrial
from det_tensorflow.testing.code.common import VALIDATION, WIDTH, SlotKiller, slot_initializer, training_dataset

layers = tf.keras.layers


class Trial(TFKerasTrial):
    """Binary classifier with one hidden layer."""

    def build_model(self) -> tf.keras.Model:
        rank = self.context.distributed.rank
        hidden = layers.Dense(8, "tanh", kernel_initializer=slot_initializer(rank, 0), input_shape=(WIDTH,))
        model = tf.keras.Sequential([hidden, layers.Dense(1, "sigmoid", kernel_initializer=slot_initializer(rank, 1))])
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.SGD(0.5, momentum=0.9))
        model.compile(optimizer, "binary_crossentropy", metrics=[tf.keras.metrics.AUC(name="auc")])
        return model

    def build_training_data_loader(self) -> tf.data.Dataset:
        return self.context.wrap_dataset(training_dataset()).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> tf.data.Dataset:
        return self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(VALIDATION)).batch(2)

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        fate = SlotKiller(self.context.distributed.rank)

        def trained(batch: int, logs: Any) -> None:
            fate.trained()

        return [tf.keras.callbacks.LambdaCallback(on_train_batch_end=trained)]
