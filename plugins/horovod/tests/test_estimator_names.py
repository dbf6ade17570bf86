"""The interface of Estimator trials behaves the same on one slot and on two."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed; it needs Python 3.10 or 3.11", allow_module_level=True)

import tensorflow as tf
from det_estimator import load_estimator_from_checkpoint_path
from det_tensorflow.testing.jobs import read_weights
from det_testing.trial_job import TrialJob

from det_core.core import EarlyExitReason
from det_core.tracking import open_store

v1 = tf.compat.v1
HPARAMS = {"global_batch_size": 8, "rate": 0.1}
CONFIG = {
    "entrypoint": "every_name:Trial",
    "hyperparameters": HPARAMS,
    "data": {"path": "here"},
    "distributed": {"backend": "horovod"},
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 8}},
    "min_validation_period": {"batches": 4},
    "min_checkpoint_period": {"batches": 4},
}


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_every_name_of_the_interface_works(slots: int, horovod: None, tmp_path: Path) -> None:
    """A hook of one slot stops the first run, and the second run continues to the end."""
    with open_store(f"sqlite:///{tmp_path / 'det.db'}") as store:
        job = TrialJob(store, tmp_path, CONFIG, code=Path(__file__).parent, weights=read_weights, limit=200)
        home = tmp_path / str(job.trial_id)

        def run() -> list[list[Any]]:
            """Train, and return the notes of every slot."""
            (job.start_alone() if slots == 1 else job.start(slots)).ended()
            return [notes(home, rank) for rank in range(slots)]

        first, second = run(), run()
        early_exits = [store.run(job.trial_id, number).early_exit for number in (1, 2)]
        experiment_id = store.trial(job.trial_id).experiment_id
        metrics = job.metrics("validation")
        uuids = [checkpoint.uuid for checkpoint in job.checkpoints()]

    stopped = 4  # end of the scheduling unit in which a hook asks to stop
    saved = [["saved", str(step)] for step in (4, 8) if step > stopped]
    everyone = list(range(slots))
    for rank in everyone:
        (values, *calls), (_, *later) = first[rank], second[rank]
        assert values == {
            "ranks": [rank, rank, slots, 1],
            "gathered": [everyone if rank == 0 else None] * 2,
            "allgathered": [everyone] * 2,
            "sent": [0, 0],
            "batch sizes": [8, 8 // slots],
            "hparams": [0.1, HPARAMS],
            "config": [{"path": "here"}, "every_name:Trial"],
            "ids": [experiment_id, job.trial_id],
            "stop requested": False,
        }
        assert calls == [*([["saved", str(stopped)]] if rank == 0 else []), ["closed", stopped, rank == slots - 1]]
        assert later == [["loaded", str(stopped)], *(saved if rank == 0 else []), ["closed", 8 - stopped, False]]
    assert early_exits == [EarlyExitReason.USER_REQUESTED_STOP.value, None]
    assert [(steps, found["order"], found["mean"]) for steps, found, _ in metrics] == [
        (steps, 11, 5.0) for steps in (0, 4, 8)
    ]
    files = {path.name: path.read_text() for path in home.rglob("*mine.txt") if not set(uuids) & {*path.parts}}
    assert files == {f"rank{rank}.mine.txt" if rank else "mine.txt": f"of rank {rank}" for rank in everyone}
    (checkpoint,) = home.rglob(uuids[-1])
    assert (checkpoint / "mine.txt").read_text() == "kept"
    weights = job.weights()
    for name, fed in (("raw", np.float32([[3.0]])), ("parsing", [example(3.0)])):
        expected = 3 * weights["dense/kernel"] + weights["dense/bias"]
        assert served(checkpoint / name, fed) == pytest.approx(expected, rel=1e-6)


def notes(home: Path, rank: int) -> list[Any]:
    """Return the notes of a slot, and remove their file."""
    file = home / f"notes-{rank}"
    lines = file.read_text().splitlines()
    file.unlink()
    return [json.loads(line) for line in lines]


def served(path: Path, fed: Any) -> Any:
    """Return the prediction of a checkpoint's SavedModel."""
    with tf.Graph().as_default(), v1.Session() as session:
        (predict,) = load_estimator_from_checkpoint_path(str(path)).signatures.values()
        guess = predict(tf.constant(fed))["guess"]
        session.run(v1.get_collection("saved_model_initializers"))
        return session.run(guess)


def example(value: float) -> bytes:
    """Return a serialized record, as in files."""
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    serialized: bytes = tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()
    return serialized
