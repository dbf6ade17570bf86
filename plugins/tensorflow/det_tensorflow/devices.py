"""Assignment of GPUs to slots."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext


def set_visible_gpu(context: TrialContext) -> None:
    """Make only this slot's GPU visible in eager mode, or none if the trial has no slots.

    Raises:
        InvalidTrial: there are fewer GPUs than slots.
    """
    own = slot_gpu(context)
    tf.config.set_visible_devices([] if own is None else tf.config.list_physical_devices("GPU")[own], "GPU")


def make_session_config(config: Any, context: TrialContext) -> Any:
    """Return a copy of a session's ``ConfigProto`` in which only this slot's GPU is visible.

    Args:
        config: a ``ConfigProto``.
        context: context of the trial.

    Raises:
        InvalidTrial: there are fewer GPUs than slots.
    """
    own, chosen = slot_gpu(context), tf.compat.v1.ConfigProto()
    chosen.CopyFrom(config)
    if own is None:
        chosen.device_count["GPU"] = 0
    else:
        chosen.gpu_options.visible_device_list = str(own)
    return chosen


def slot_gpu(context: TrialContext) -> int | None:
    """Return the index of this slot's GPU among those that TensorFlow finds, or None if it uses none.

    Raises:
        InvalidTrial: there are fewer GPUs than slots.
    """
    gpus, rank = tf.config.list_physical_devices("GPU"), context.distributed.local_rank
    if context.get_experiment_config()["resources"]["slots_per_trial"] == 0 or not gpus:
        return None
    if rank >= len(gpus):
        raise InvalidTrial(f"slot {rank} of this machine has no GPU: there are only {len(gpus)}; use fewer slots")
    return rank
