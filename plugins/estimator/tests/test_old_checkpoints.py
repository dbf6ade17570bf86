"""Checkpoints that releases 0.17 to 0.20 of the original system saved (see old/make.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_estimator import load_estimator_from_checkpoint_path
from det_estimator._old_checkpoints import newest_variables_prefix
from det_estimator._training_session import _variables_prefix
from tensorflow.python.eager import context as eager

from det_core.errors import CheckpointCorrupt, CheckpointNotFound

v1 = tf.compat.v1
OLD = Path(__file__).parent / "old"
RELEASES = sorted(entry.name for entry in OLD.iterdir() if entry.is_dir())
ours = pytest.mark.parametrize("release", RELEASES)


def test_there_is_a_checkpoint_of_every_minor_release() -> None:
    assert {release.rpartition(".")[0] for release in RELEASES} == {"0.17", "0.18", "0.19", "0.20"}


@pytest.mark.filterwarnings("ignore:`tf.layers.dense` is deprecated")
@ours
def test_variables_continue_in_todays_graph(release: str) -> None:
    held = _held(release)
    with tf.Graph().as_default(), v1.Session() as session:
        _train_op()
        v1.train.Saver().restore(session, newest_variables_prefix(OLD / release))
        variables = {one.op.name: one for one in v1.global_variables()}
        restored = {name: value.tolist() for name, value in session.run(variables).items()}
    assert restored == held["variables"]


def test_the_served_model_of_an_old_checkpoint_is_loaded() -> None:
    """Trials of Estimators, which other tests train in this process, switch eager execution off."""
    with eager.eager_mode():
        served = load_estimator_from_checkpoint_path(str(OLD / "0.19.10")).signatures["serving_default"]
        found = served(tf.constant([[1.0, 2.0, 3.0]]))["answer"].numpy().item()
    held = _held("0.19.10")["variables"]
    hidden = np.array([1.0, 2.0, 3.0]) @ held["hidden/kernel"] + held["hidden/bias"]
    assert found == pytest.approx((hidden @ held["answer/kernel"] + held["answer/bias"]).item(), rel=1e-5)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of a checkpoint, which the test may damage."""
    shutil.copytree(OLD / "0.19.10", tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_the_directory_in_which_a_checkpoint_was_written_is_ignored(checkpoint: Path) -> None:
    assert not (checkpoint / "checkpoint").read_text().startswith(f'model_checkpoint_path: "{checkpoint}')
    assert _variables_prefix(checkpoint) == newest_variables_prefix(checkpoint) == str(checkpoint / "model.ckpt-5")
    (checkpoint / "checkpoint").unlink()
    assert newest_variables_prefix(checkpoint) == str(checkpoint / "model.ckpt-5")


def test_a_directory_without_variables_is_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"no model\.ckpt-\*\.index"):
        newest_variables_prefix(tmp_path)


@pytest.mark.parametrize("damage", [lambda content: content[:90], lambda content: content[::-1]], ids=["cut", "odd"])
def test_a_damaged_file_is_reported(damage: Callable[[bytes], bytes], checkpoint: Path) -> None:
    index = checkpoint / "model.ckpt-5.index"
    index.write_bytes(damage(index.read_bytes()))
    with pytest.raises(CheckpointCorrupt, match=str(checkpoint)):
        newest_variables_prefix(checkpoint)


def _held(release: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((OLD / release / "expected.json").read_text())
    return held


def _train_op() -> Any:
    """Build the graph of old/make.py."""
    v1.set_random_seed(7)  # required where operations must be deterministic
    features, labels = tf.ones([4, 3]), tf.ones([4, 1])
    answer = v1.layers.dense(v1.layers.dense(features, 2, name="hidden"), 1, name="answer")
    loss = v1.losses.mean_squared_error(labels, answer)
    return v1.train.AdamOptimizer(0.01).minimize(loss, global_step=v1.train.get_or_create_global_step())
