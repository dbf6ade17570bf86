"""Checkpoints that releases 0.17 to 0.20 of the original system saved."""

from __future__ import annotations

import re
from pathlib import Path

import tensorflow as tf
from det_tensorflow.checkpoint_errors import translate_read_errors

from det_core.errors import CheckpointNotFound

_NAME = re.compile(r"model\.ckpt-(\d+)\.index")


def newest_variables_prefix(path: Path) -> str:
    """Return the prefix of the newest variables in a checkpoint's directory.

    The file ``checkpoint`` is not read, because it names the directory in which the checkpoint was first written.

    Raises:
        CheckpointNotFound: the directory contains no variables of an Estimator.
        CheckpointCorrupt: a file is damaged.
    """
    steps = {int(found[1]): file for file in path.glob("*.index") if (found := _NAME.fullmatch(file.name))}
    if not steps:
        raise CheckpointNotFound(f"{path} is not a checkpoint of an EstimatorTrial: it has no model.ckpt-*.index")
    newest = str(steps[max(steps)].with_suffix(""))
    with translate_read_errors(path):
        tf.train.load_checkpoint(newest)
    return newest
