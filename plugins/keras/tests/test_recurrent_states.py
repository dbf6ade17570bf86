"""The states of recurrent layers with ``stateful=True`` continue after a resume and after validations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from det_keras import TFKerasTrial
from det_keras._adapter import KerasAdapter
from det_keras._random import seed_all

X = np.random.default_rng(0).normal(size=(24, 2, 2)).astype(np.float32)


class Trial(TFKerasTrial):
    """Trial with six batches of four."""

    def build_model(self) -> tf.keras.Model:
        layers = tf.keras.layers
        recurrent = layers.Bidirectional(layers.GRU(2, stateful=True), batch_input_shape=(4, 2, 2))
        model = self.context.wrap_model(tf.keras.Sequential([recurrent, layers.Dense(1)]))
        model.compile("sgd", "mse", run_eagerly=True)
        return model

    def build_training_data_loader(self) -> Any:
        return X, X.sum((1, 2))[:, None]

    build_validation_data_loader = build_training_data_loader


def never() -> bool:
    return False


def test_training_continues_with_the_states(make_context: Callable[..., Any], tmp_path: Path) -> None:
    def begin() -> KerasAdapter:
        seed_all(11)
        context = make_context()
        context.configure_fit(shuffle=False)
        return KerasAdapter(Trial(context), context)

    undisturbed, first, second = begin(), begin(), begin()
    undisturbed.started(), first.started()
    rows = [*undisturbed.train(2, never), *undisturbed.train(2, never)]
    begun = first.train(2, never)
    first.validate(never)
    first.snapshot()(tmp_path)
    second.load(tmp_path, batches_trained=2)
    second.started()
    assert [*begun, *second.train(2, never)] == rows
