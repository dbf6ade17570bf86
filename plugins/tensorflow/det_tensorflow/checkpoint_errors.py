"""Errors of checkpoint files that TensorFlow reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from det_core.errors import CheckpointCorrupt


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Turn TensorFlow's errors about the files of a checkpoint into `CheckpointCorrupt`.

    Args:
        path: the file or directory that the error names.

    Raises:
        CheckpointCorrupt: a file is damaged or missing.
    """
    try:
        yield
    except (tf.errors.OpError, OSError, IndexError) as error:
        raise CheckpointCorrupt(f"{path} has damaged files: {error}") from error
