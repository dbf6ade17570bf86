"""Checkpoints that releases 0.17 to 0.20 of the original saved: their weights are as ``model.save_weights`` writes."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from det_tensorflow.files import reading
from det_tensorflow.optimizer import KINDS

from det_core.errors import InvalidTrial

_WEIGHTS = "determined-keras-model-weights"


def is_old(path: Path) -> bool:
    """Whether the original saved this directory."""
    return (path / f"{_WEIGHTS}.index").is_file()


def load_weights(path: Path, model: tf.keras.Model) -> None:
    """Put the weights back, and nothing else. A model that is not built takes its own as it is built.

    Raises:
        InvalidTrial: the model has weights that were not saved, or of other shapes.
        CheckpointCorrupt: a file is damaged.
    """
    # Keras would also restore the model's optimizer, and refuse if that is of another kind than the saved one.
    parts = {
        name: part
        for name, part in tf.train.TrackableView(model).children(model).items()
        if not isinstance(part, KINDS)
    }
    with reading(path):
        try:
            status = tf.train.Checkpoint(**parts).read(str(path / _WEIGHTS)).expect_partial()
        except ValueError as error:
            raise InvalidTrial(f"{path} was saved of another model than the trial's: {error}") from error
    # TensorFlow's own check would also look for generators of random numbers, which the original did not save.
    found = {id(one) for one in status._checkpoint.object_by_proto_id.values()}
    missing = [weight.name for weight in (model.weights if model.built else ()) if id(weight) not in found]
    if missing:
        raise InvalidTrial(
            f"{path} was saved of another model than the trial's: it has no {', '.join(missing)}; "
            "build_model() must make the model as it was"
        )
