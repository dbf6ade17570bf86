"""Rehearsals of a TFKerasTrial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_keras._random import seed_all

from .test_trial import X, Y, begin

pytestmark = pytest.mark.integration


def together(work: Callable[[], Any]) -> list[Any]:
    return [work()]


class Seen(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_test"):
            self.calls.append(name)
        return super().__getattribute__(name)


class Reckless(tf.keras.Sequential):  # type: ignore[misc]
    """Model whose evaluation trains."""

    def test_step(self, data: Any) -> Any:
        self.train_step(data)
        return super().test_step(data)


def test_a_rehearsal_restores_variables_and_callbacks_do_not_notice(make_context: Any) -> None:
    seen = Seen()
    context = make_context()
    model = context.wrap_model(
        Reckless([tf.keras.layers.Dense(1, input_shape=(2,)), tf.keras.layers.BatchNormalization()])
    )
    model.compile("adam", "mse", ["mae"], run_eagerly=True)
    adapter = begin(context, build_model=lambda: model, callbacks=(seen,))
    seen.calls.clear()
    before = [one.numpy() for one in adapter._variables()], adapter._generators.state()
    assert set(adapter.rehearse(together) or ()) == {"val_loss", "val_mae"}
    after = [one.numpy() for one in adapter._variables()], adapter._generators.state()
    assert all(map(np.array_equal, after[0], before[0]))
    assert after[1] == before[1]
    assert not seen.calls


def trained(make_context: Any, *, rehearses: bool) -> Any:
    seed_all(3)
    context = make_context()
    shuffled = context.wrap_dataset(tf.data.Dataset.from_tensor_slices((X, Y[:, None]))).shuffle(20, seed=1).batch(4)
    adapter = begin(context, build_training_data_loader=lambda: shuffled, build_validation_data_loader=lambda: shuffled)
    if rehearses:
        assert "val_accuracy" in (adapter.rehearse(together) or ())
    return adapter.train(12, lambda: False)


def test_training_data_that_counts_its_iterators_is_read_in_the_same_order(make_context: Any) -> None:
    """Here training and validation read the same shuffle."""
    assert trained(make_context, rehearses=True) == trained(make_context, rehearses=False)


class Buggy(tf.keras.Sequential):  # type: ignore[misc]
    def test_step(self, data: Any) -> Any:
        raise ValueError("a bug of the user")


def test_an_exception_of_the_evaluation_leaves_the_generators_alone(make_context: Any) -> None:
    context = make_context()
    model = context.wrap_model(Buggy([tf.keras.layers.Dense(1, input_shape=(2,))]))
    model.compile("adam", "mse")
    adapter = begin(context, build_model=lambda: model)
    before = adapter._generators.state()
    with pytest.raises(ValueError, match="a bug of the user"):
        adapter.rehearse(together)
    assert adapter._generators.state() == before
