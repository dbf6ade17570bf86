"""Checkpoints that releases 0.17 to 0.20 of the original system saved (see old/make.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_keras import _old_checkpoints

from det_core.errors import CheckpointCorrupt, InvalidTrial

layers, optimizers = tf.keras.layers, tf.keras.optimizers
legacy = optimizers.legacy
OLD = Path(__file__).parent / "old"
RELEASES = sorted(entry.name for entry in OLD.iterdir() if entry.is_dir())
ROWS = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
WEIGHTS = "determined-keras-model-weights"
ours = pytest.mark.parametrize("release", RELEASES)


def test_there_is_a_checkpoint_of_every_minor_release() -> None:
    assert {release.rpartition(".")[0] for release in RELEASES} == {"0.17", "0.18", "0.19", "0.20"}


@ours
@pytest.mark.parametrize("adam", [legacy.Adam, optimizers.Adam])
def test_weights_are_restored_and_the_optimizer_is_not(release: str, adam: Any) -> None:
    model = _model(adam(0.5))
    assert _old_checkpoints.is_old_checkpoint(OLD / release)
    _old_checkpoints.load_old_weights(OLD / release, model)
    assert [value.tolist() for value in model.get_weights()] == _held(release)["weights"]
    assert float(model.optimizer.learning_rate) == 0.5


def test_generators_of_layers_need_not_be_in_a_checkpoint(random_layers: None) -> None:
    model = _model()
    model.fit(ROWS, ROWS.sum(1), verbose=0)
    _old_checkpoints.load_old_weights(OLD / "0.20.1", model)
    assert [value.tolist() for value in model.get_weights()] == _held("0.20.1")["weights"]


def test_a_model_that_is_built_later_gets_the_weights() -> None:
    model = tf.keras.Sequential([layers.Dense(2), layers.BatchNormalization(), layers.Dropout(0.1), layers.Dense(1)])
    _old_checkpoints.load_old_weights(OLD / "0.19.10", model)
    model(ROWS)
    assert [value.tolist() for value in model.get_weights()] == _held("0.19.10")["weights"]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Set a seed, which is required to draw random numbers where operations must be deterministic."""
    tf.keras.utils.set_random_seed(7)


@pytest.fixture
def random_layers() -> Iterator[None]:
    switch = tf.keras.backend.experimental
    before = switch.is_tf_random_generator_enabled()
    switch.enable_tf_random_generator()
    yield
    if not before:
        switch.disable_tf_random_generator()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of a checkpoint, which the test may change."""
    return Path(shutil.copytree(OLD / "0.19.10", tmp_path / "checkpoint"))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([layers.Dense(3, input_shape=(3,)), layers.Dense(1)], "shape"),
        (
            [layers.Dense(2, input_shape=(3,)), layers.BatchNormalization(), *map(layers.Dense, (1, 7))],
            "no last/kernel",
        ),
    ],
)
def test_a_model_that_differs_is_rejected(parts: list[Any], words: str) -> None:
    parts[-1]._name = "last"
    with pytest.raises(InvalidTrial, match=rf"another model than the trial's.*{words}"):
        _old_checkpoints.load_old_weights(OLD / "0.19.10", tf.keras.Sequential(parts))


@pytest.mark.parametrize("damage", [lambda content: content[:90], lambda content: content[::-1]], ids=["cut", "odd"])
@pytest.mark.parametrize("name", [f"{WEIGHTS}.index", f"{WEIGHTS}.data-00000-of-00001"])
def test_a_damaged_file_is_reported(name: str, damage: Callable[[bytes], bytes], checkpoint: Path) -> None:
    (checkpoint / name).write_bytes(damage((checkpoint / name).read_bytes()))
    with pytest.raises(CheckpointCorrupt, match=str(checkpoint)):
        _old_checkpoints.load_old_weights(checkpoint, _model())


def test_a_missing_file_is_reported(checkpoint: Path) -> None:
    data = checkpoint / f"{WEIGHTS}.data-00000-of-00001"
    data.unlink()
    with pytest.raises(CheckpointCorrupt, match=data.name):
        _old_checkpoints.load_old_weights(checkpoint, _model())


def _held(release: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((OLD / release / "expected.json").read_text())
    return held


def _model(optimizer: Any = None) -> tf.keras.Model:
    """Build the model of old/make.py."""
    first, last = layers.Dense(2, input_shape=(3,)), layers.Dense(1)
    model = tf.keras.Sequential([first, layers.BatchNormalization(), layers.Dropout(0.1), last])
    model.compile(optimizer or optimizers.Adam(), "mse", run_eagerly=True)
    return model
