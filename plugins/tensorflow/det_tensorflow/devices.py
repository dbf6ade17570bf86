"""Which GPU a slot uses."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext


def choose(context: TrialContext) -> None:
    """Leave this slot its own GPU, or none if the trial has no slots.

    Raises:
        InvalidTrial: there are fewer GPUs than slots.
    """
    own = own_gpu(context)
    tf.config.set_visible_devices([] if own is None else tf.config.list_physical_devices("GPU")[own], "GPU")


def in_sessions(config: Any, context: TrialContext) -> Any:
    """What `choose` is in eager mode, for sessions: a copy of a ``ConfigProto`` that leaves this slot its own GPU."""
    own, chosen = own_gpu(context), tf.compat.v1.ConfigProto()
    chosen.CopyFrom(config)
    if own is None:
        chosen.device_count["GPU"] = 0
    else:
        chosen.gpu_options.visible_device_list = str(own)
    return chosen


def own_gpu(context: TrialContext) -> int | None:
    """The number of this slot's GPU among those that TensorFlow finds; None: it has none. Raises as `choose`."""
    gpus, rank = tf.config.list_physical_devices("GPU"), context.distributed.local_rank
    if context.config.resources.slots_per_trial == 0 or not gpus:
        return None
    if rank >= len(gpus):
        raise InvalidTrial(f"slot {rank} of this machine has no GPU, of which there are {len(gpus)}; use fewer slots")
    return rank
