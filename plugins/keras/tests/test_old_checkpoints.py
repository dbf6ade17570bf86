"""Checkpoints that releases 0.12 to 0.20 of the original system saved (see old/make.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
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
OPTIMIZERS = "determined-keras-optimizer-weights.h5"
WHOLE = "determined-keras-model.h5"


def test_there_is_a_checkpoint_of_every_layout() -> None:
    assert {release.rpartition(".")[0] for release in RELEASES} == {"0.12", "0.13", "0.17", "0.18", "0.19", "0.20"}


@pytest.mark.parametrize(
    ("release", "adam"),
    [*((release, legacy.Adam) for release in RELEASES), ("0.13.7", optimizers.Adam), ("0.20.1", optimizers.Adam)],
)
def test_training_continues_with_the_learning_rate_of_the_trial(release: str, adam: Any) -> None:
    model, held = _model(adam(0.5)), _held(release)
    create = getattr(model.optimizer, "build", None) or model.optimizer._create_all_weights
    create(model.trainable_variables)
    assert _old_checkpoints.is_old_checkpoint(OLD / release)
    _old_checkpoints.load_old_weights(OLD / release, model)
    _old_checkpoints.load_old_optimizers(OLD / release, [model.optimizer])
    assert [value.tolist() for value in model.get_weights()] == held["weights"]
    slots = _old_checkpoints._own_slots(model.optimizer)
    own = [variable.numpy().tolist() for slot in ("iter", "m", "v") for variable in slots[slot]]
    assert own == held["optimizer"]
    assert own[0] == 5
    assert float(model.optimizer.learning_rate) == 0.5
    model.fit(ROWS, ROWS.sum(1), batch_size=8, verbose=0)
    assert int(model.optimizer.iterations) == 6


@pytest.mark.parametrize("make", [optimizers.SGD, optimizers.Nadam, legacy.SGD, optimizers.Adam])
def test_an_optimizer_that_differs_starts_anew(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The last one belongs to another number of variables."""
    model = _model(make(0.5))
    model.fit(ROWS, ROWS.sum(1), verbose=0)
    other = model.optimizer
    if make is optimizers.Adam:
        other = make(0.5)
        other.build(model.trainable_variables[:1])
    before = int(other.iterations)
    _old_checkpoints.load_old_optimizers(OLD / "0.13.8", [other])
    assert int(other.iterations) == before
    assert "starts anew: the checkpoint has m with the shapes" in caplog.text


def test_each_optimizer_has_its_own_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A second optimizer, as GANs have, is found by its number. A third one was not saved."""
    shutil.copy(OLD / "0.19.10" / OPTIMIZERS, tmp_path)
    weight = tf.Variable(1.0)
    trained = [legacy.SGD(0.5, momentum=0.5) for _ in range(3)]
    for number, optimizer in enumerate(trained):
        for _ in range(number + 1):
            optimizer.apply_gradients([(tf.constant(0.25), weight)])
    with h5py.File(tmp_path / OPTIMIZERS, "w") as file:
        for number, optimizer in enumerate(trained[1:]):
            group = file.create_group(f"optimizer-{number}/optimizer_weights")
            group.attrs["weight_names"] = [variable.name for variable in optimizer.weights]
            for variable in optimizer.weights:
                group[variable.name] = variable.numpy()
    fresh = [optimizers.SGD(0.5, momentum=0.5) for _ in range(3)]
    for optimizer in fresh:
        optimizer.build([weight])
    _old_checkpoints.load_old_optimizers(tmp_path, fresh)
    assert [int(optimizer.iterations) for optimizer in fresh] == [2, 3, 0]
    assert [float(optimizer.momentums[0]) for optimizer in fresh[:2]] == [
        float(optimizer.get_slot(weight, "momentum")) for optimizer in trained[1:]
    ]
    assert "the checkpoint has none in its place" in caplog.text
    (tmp_path / OPTIMIZERS).unlink()
    _old_checkpoints.load_old_optimizers(tmp_path, fresh)
    assert "has no optimizers" in caplog.text


@pytest.mark.parametrize("kind", sorted(_old_checkpoints._SLOTS))
def test_slots_of_every_optimizer_are_those_of_its_legacy_version(kind: str, tmp_path: Path) -> None:
    """Train with the legacy optimizer, save it as the original did, continue with today's, and compare."""
    more = {"RMSprop": {"momentum": 0.5, "centered": True}, "SGD": {"momentum": 0.5}, "Adam": {"amsgrad": True}}
    old = getattr(legacy, kind)(0.1, **more.get(kind, {}))
    new = getattr(optimizers, kind)(0.1, **more.get(kind, {}))
    weights = [tf.Variable([1.0, 2.0]), tf.Variable([[3.0]])]
    gradients = [(tf.ones_like(one) / 4, one) for one in weights]
    for _ in range(3):
        old.apply_gradients(gradients)
    names = [variable.name for variable in old.weights]
    with h5py.File(tmp_path / OPTIMIZERS, "w") as file:
        group = file.create_group("optimizer-0/optimizer_weights")
        group.attrs["weight_names"] = [f"{number}/{name}" for number, name in enumerate(names)]
        for number, variable in enumerate(old.weights):
            group[f"{number}/{names[number]}"] = variable.numpy()
    copies = [tf.Variable(one) for one in weights]
    new.build(copies)
    _old_checkpoints.load_old_optimizers(tmp_path, [new])
    old.apply_gradients(gradients)
    new.apply_gradients([(tf.ones_like(one) / 4, one) for one in copies])
    for one, other in zip(weights, copies, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


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
    with pytest.raises(InvalidTrial, match=r"0\.13\.7 was saved from another model than the trial's"):
        _old_checkpoints.load_old_weights(OLD / "0.13.7", tf.keras.Sequential(parts))


@pytest.mark.parametrize("damage", [lambda content: content[:90], lambda content: content[::-1]], ids=["cut", "odd"])
@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("0.19.10", f"{WEIGHTS}.index"),
        ("0.19.10", f"{WEIGHTS}.data-00000-of-00001"),
        ("0.19.10", OPTIMIZERS),
        ("0.13.7", WHOLE),
    ],
)
def test_a_damaged_file_is_reported(release: str, name: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    shutil.copytree(OLD / release, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(CheckpointCorrupt, match=str(tmp_path)):
        _old_checkpoints.load_old_weights(tmp_path, model := _model())
        _old_checkpoints.load_old_optimizers(tmp_path, [model.optimizer])


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
