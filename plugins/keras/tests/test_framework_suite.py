"""Compliance suite for frameworks, with several kinds of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf
from det_keras import TFKerasTrial, callbacks
from det_testing.framework import FrameworkCompliance, reach_point

INPUTS = np.arange(36, dtype=np.float32).reshape(18, 2) / 36
NUMBERS = np.arange(18, dtype=np.float32)


tf.config.experimental.enable_op_determinism()  # in this module, so that child processes of the suite do it, too


class Tells(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Callback that reports its position to the suite."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        reach_point("training")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        reach_point("validation")


class Wanders(callbacks.Callback):
    """Callback that changes the learning rate and a bias at random, more with every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen += 1
        self.model.optimizer.learning_rate.assign(0.01 + 0.01 * np.random.rand() + 0.001 * logs["loss"])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.layers[-1].bias.assign_add(tf.random.uniform([1]) * 0.001 * self.seen)

    def get_state(self) -> Any:
        return self.seen

    def load_state(self, state: Any) -> None:
        self.seen = state


class Tiny(tf.keras.Sequential):  # type: ignore[misc]
    """Model whose metrics show the records of a batch."""

    def train_step(self, data: Any) -> Any:
        _, y = data
        return {**super().train_step(data), "records": y[:, 0]}


class FromDataset(TFKerasTrial):
    """Batches of four, five per epoch, with noise from the input pipeline."""

    def build_model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        model = Tiny(
            [
                layers.Dense(8, activation="relu", input_shape=(2,)),
                layers.BatchNormalization(),
                layers.Dropout(0.2),
                layers.Dense(1),
            ]
        )
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam(0.01))
        model.compile(optimizer, loss="mse", metrics=["mae"])
        return model

    def data(self) -> tf.data.Dataset:
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices((INPUTS, NUMBERS[:, None])))
        return dataset.map(lambda x, y: (x + 0.1 * tf.random.normal([2]), y))

    def build_training_data_loader(self) -> Any:
        return self.data().shuffle(10).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> Any:
        return self.data().batch(self.context.get_per_slot_batch_size())

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [Tells(), Wanders()]


class FromArrays(FromDataset):
    """Eager training with aggregated gradients, a legacy optimizer, and a model that its first batch builds."""

    def build_model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        model = Tiny([layers.Dense(8), layers.GaussianNoise(0.1), layers.Dense(1)])
        model = self.context.wrap_model(model)
        optimizer = self.context.wrap_optimizer(tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9))
        model.compile(optimizer, loss="mse", run_eagerly=True)
        return model

    def build_training_data_loader(self) -> Any:
        return INPUTS, NUMBERS[:, None]

    build_validation_data_loader = build_training_data_loader


class _Compliance(FrameworkCompliance):
    plugin = "det_keras.plugin"
    metric = "val_loss"

    def weights(self, path: Path) -> Any:
        return {name: value for name, value in read_tensors(path).items() if is_weight(name)}

    def replace_weights(self, path: Path, source: Path) -> None:
        mixed = {**read_tensors(path), **self.weights(source)}
        tf.raw_ops.SaveV2(
            prefix=str(path / "keras"),
            tensor_names=list(mixed),
            shape_and_slices=[""] * len(mixed),
            tensors=list(mixed.values()),
        )


def read_tensors(path: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(path / "keras"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def is_weight(name: str) -> bool:
    return name.startswith("weights/") and "SLOT" not in name


@pytest.mark.integration
@pytest.mark.slow
class TestFromDataset(_Compliance):
    trial_class = FromDataset


@pytest.mark.integration
@pytest.mark.slow
class TestFromArrays(_Compliance):
    trial_class = FromArrays
    config: ClassVar = {"optimizations": {"aggregation_frequency": 2}}
