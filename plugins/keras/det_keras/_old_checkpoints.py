"""Checkpoints that releases 0.17 to 0.20 of the original system saved with ``model.save_weights``."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from det_tensorflow.checkpoint_errors import translate_read_errors
from det_tensorflow.optimizer import OPTIMIZER_TYPES

from det_core.errors import InvalidTrial

_WEIGHTS = "determined-keras-model-weights"


def is_old_checkpoint(path: Path) -> bool:
    """Return whether the original system saved this checkpoint."""
    return (path / f"{_WEIGHTS}.index").is_file()


def load_old_weights(path: Path, model: tf.keras.Model) -> None:
    """Load only the weights into a model. A model that is not built yet loads them when it is.

    Raises:
        InvalidTrial: the model has weights that were not saved, or that have other shapes.
        CheckpointCorrupt: a file is damaged.
    """
    # Keras would also restore the optimizer, and fail if its class differs from the saved one.
    parts = {
        name: part
        for name, part in tf.train.TrackableView(model).children(model).items()
        if not isinstance(part, OPTIMIZER_TYPES)
    }
    with translate_read_errors(path):
        try:
            status = tf.train.Checkpoint(**parts).read(str(path / _WEIGHTS)).expect_partial()
        except ValueError as error:
            raise InvalidTrial(f"{path} was saved from another model than the trial's: {error}") from error
    # TensorFlow's own check also requires random generators, which the original system did not save.
    found = {id(one) for one in status._checkpoint.object_by_proto_id.values()}
    missing = [weight.name for weight in (model.weights if model.built else ()) if id(weight) not in found]
    if missing:
        raise InvalidTrial(
            f"{path} was saved from another model than the trial's: it has no {', '.join(missing)}; "
            "build_model() must return the model that was saved"
        )
