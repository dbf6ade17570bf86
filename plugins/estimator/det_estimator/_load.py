"""Loading of checkpoints outside of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial


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
    return tf.compat.v1.saved_model.load_v2(str(found[0].parent), tags=tags or ["serve"])
