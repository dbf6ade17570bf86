"""Checkpoints of trials, outside of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial


def load_estimator_from_checkpoint_path(path: str, tags: list[str] | None = None) -> Any:
    """Load the SavedModel of a checkpoint; in a process that has not imported `EstimatorTrial`, which ends eager mode.

    Args:
        path: the checkpoint's directory.
        tags: of the SavedModel; by default ``["serve"]``, which those of det have.

    Returns:
        A trackable object, whose functions are in ``signatures``.

    Raises:
        InvalidTrial: the directory does not have exactly one; lists those it has.
    """
    found = sorted(Path(path).glob("**/saved_model.pb"))
    if len(found) != 1:
        listed = ", ".join(str(file.parent.relative_to(path)) for file in found) or "none"
        raise InvalidTrial(
            f"expected exactly one SavedModel below {path}, found: {listed}; let build_serving_input_receiver_fns() "
            "return one function, or load one by tf.compat.v1.saved_model.load_v2(directory, tags=['serve'])"
        )
    return tf.compat.v1.saved_model.load_v2(str(found[0].parent), tags=tags or ["serve"])
