"""Rehearsals of a TFKerasTrial: what they restore, and that training is bitwise the same without them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_keras import callbacks
from det_keras._random import seed_all
from det_testing import campaign_seeds
from det_testing.framework.trial_harness import TrialHarness

from tests.rehearsals import draw_periods, rehearsed_and_plain

from .conftest import CONFIG
from .test_framework_suite import FromDataset, Tiny, read_tensors
from .test_trial import X, Y, begin

pytestmark = pytest.mark.integration
SEEDS = campaign_seeds(few=1, many=24)


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


class Noisy(Tiny):
    """Model whose steps draw numbers, and whose evaluation trains if it is reckless."""

    reckless = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.generator = tf.random.Generator.from_seed(3)

    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "drawn": self.generator.uniform([])}

    def test_step(self, data: Any) -> Any:
        if self.reckless:
            self.train_step(data)
        return {**super().test_step(data), "drawn": self.generator.uniform([])}


class RecklesslyNoisy(Noisy):
    reckless = True


class Swap(callbacks.Callback):
    """Average of the weights at the end of each epoch, with which the model is validated."""

    average: Any = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        new = self.model.get_weights()
        self.average = [0.5 * (old + one) for old, one in zip(self.average or new, new, strict=True)]

    def on_test_begin(self, logs: Any = None) -> None:
        self.kept = self.model.get_weights()
        self.model.set_weights(self.average or self.kept)

    def on_test_end(self, logs: Any = None) -> None:
        self.model.set_weights(self.kept)

    def get_state(self) -> Any:
        return self.average

    def load_state(self, state: Any) -> None:
        self.average = state


class Batches(tf.keras.utils.Sequence):  # type: ignore[misc]
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        part = slice(4 * index, 4 * index + 4)
        return X[part] + np.random.rand(), Y[part, None]


class Everything(FromDataset):
    """Trial with all that a rehearsal could disturb, as chosen by ``data`` in the config."""

    def build_model(self) -> tf.keras.Model:
        options, layers = self.context.get_data_config(), tf.keras.layers
        kinds = [layers.Dense(8, input_shape=(2,)), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1)]
        model = self.context.wrap_model((RecklesslyNoisy if options["reckless"] else Noisy)(kinds))
        optimizers = {"adam": tf.keras.optimizers.Adam, "legacy": tf.keras.optimizers.legacy.Adam}
        optimizer = self.context.wrap_optimizer(optimizers[options["optimizer"]](0.01))
        model.compile(
            optimizer, "mse", ["mae", tf.keras.metrics.RootMeanSquaredError()], run_eagerly=options["eagerly"]
        )
        return model

    def build_training_data_loader(self) -> Any:
        kind = self.context.get_data_config()["data"]
        if kind == "arrays":
            return X, Y[:, None]
        if kind == "sequence":
            return Batches()
        noisy = self.data()
        return (noisy.shuffle(10) if kind == "shuffle" else noisy).batch(self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        return [Swap()] if self.context.get_data_config()["swap"] else []


def read_variables(path: Path) -> dict[str, Any]:
    return {name: value for name, value in read_tensors(path).items() if name.endswith("VARIABLE_VALUE")}


def config_of(seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    return {
        **draw_periods(chance),
        "data": {
            "eagerly": chance.random() < 0.5,
            "data": chance.choice(["arrays", "sequence", "dataset", "shuffle"]),
            "optimizer": chance.choice(["adam", "legacy"]),
            "reckless": chance.random() < 0.7,
            "swap": chance.random() < 0.5,
        },
    }


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rehearsed_trial_equals_one_without_rehearsal(seed: int, tmp_path: Path) -> None:
    harness = TrialHarness(tmp_path, "det_keras._run:run_trial", Everything, CONFIG, read_variables)
    rehearsed, plain = rehearsed_and_plain(harness, config_of(seed))
    assert rehearsed == plain, config_of(seed)
