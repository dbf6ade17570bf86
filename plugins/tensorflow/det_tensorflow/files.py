"""Files of checkpoints that TensorFlow reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from det_core.errors import CheckpointCorrupt


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around code by which TensorFlow reads the files of a checkpoint: what it says of damage becomes our error.

    Raises:
        CheckpointCorrupt: a file is damaged or missing.
    """
    try:
        yield
    except (tf.errors.OpError, OSError, IndexError) as error:
        raise CheckpointCorrupt(f"{path} has damaged files: {error}") from error
