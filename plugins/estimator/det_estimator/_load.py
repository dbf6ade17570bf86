"""Loading of checkpoints outside of trials."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.storage import read_object

STATE_FILE = "estimator_state.json"

_log = logging.getLogger("det.estimator")


def load_estimator_from_checkpoint_path(path: str, tags: list[str] | None = None) -> Any:
    """Load the SavedModel of a checkpoint.

    To call the model in eager mode, do not import `EstimatorTrial` in the same process, which turns eager mode off.

    Args:
        path: the checkpoint's directory.
        tags: the tags of the SavedModel. The default, ``["serve"]``, fits those that det exports.

    Returns:
        A trackable object, whose functions are in ``signatures``.

    Raises:
        InvalidTrial: the directory does not contain exactly one SavedModel. The message lists those it contains.
    """
    found = sorted(Path(path).glob("**/saved_model.pb"))
    if len(found) != 1:
        listed = ", ".join(str(file.parent.relative_to(path)) for file in found) or "none"
        raise InvalidTrial(
            f"expected exactly one SavedModel below {path}, found: {listed}; return one function from "
            "build_serving_input_receiver_fns(), or load one with "
            "tf.compat.v1.saved_model.load_v2(directory, tags=['serve'])"
        )
    state = Path(path, STATE_FILE)
    if state.exists() and (averages := read_object(state).get("averages_not_exported")):
        warn_of_other_weights(averages)
    return tf.compat.v1.saved_model.load_v2(str(found[0].parent), tags=tags or ["serve"])


def warn_of_other_weights(averages: Mapping[str, str]) -> None:
    """Warn that a SavedModel has other weights than those that were validated.

    Args:
        averages: the variables of the model, with those of the checkpoint that were validated instead.
    """
    variable = min(averages)
    _log.warning(
        "the SavedModel has the weights of the training, but the validation restored %d of its variables from others, "
        "such as averages (%s from %s); let the model function return the same scaffold for PREDICT as for EVAL",
        len(averages),
        variable,
        averages[variable],
    )
