"""Which devices a trial uses, and what old trials set in a ``ConfigProto``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext

_log = logging.getLogger("det.keras")


def _grow(allow: bool) -> None:
    for gpu in tf.config.get_visible_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, allow)


_TAKEN: dict[str, Callable[[Any], None]] = {
    "intra_op_parallelism_threads": tf.config.threading.set_intra_op_parallelism_threads,
    "inter_op_parallelism_threads": tf.config.threading.set_inter_op_parallelism_threads,
    "allow_soft_placement": tf.config.set_soft_device_placement,
    "gpu_options.allow_growth": _grow,
}


def choose_devices(context: TrialContext) -> None:
    """Leave this slot its own GPU, or none if the trial has no slots.

    Raises:
        InvalidTrial: there are fewer GPUs than slots.
    """
    gpus, rank = tf.config.list_physical_devices("GPU"), context.distributed.local_rank
    if context.config.resources.slots_per_trial == 0 or not gpus:
        tf.config.set_visible_devices([], "GPU")
        return
    if rank >= len(gpus):
        raise InvalidTrial(f"slot {rank} of this machine has no GPU, of which there are {len(gpus)}; use fewer slots")
    tf.config.set_visible_devices(gpus[rank], "GPU")


def apply(config: tf.compat.v1.ConfigProto) -> None:
    """Set what TensorFlow 2 has a setting for: threads, soft placement, and growth of GPU memory."""
    ignored = []
    for name, value in _set_fields(config):
        try:
            _TAKEN[name](value)
        except (KeyError, RuntimeError):  # RuntimeError: the trial computed something before
            ignored.append(name)
    if ignored:
        _log.warning(
            "session_config() sets %s, which has no effect; set it by tf.config at the top of the trial's module",
            ", ".join(ignored),
        )


def _set_fields(message: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field, value in message.ListFields():
        name = prefix + field.name
        nested = field.type == field.TYPE_MESSAGE and field.label != field.LABEL_REPEATED
        found += _set_fields(value, f"{name}.") if nested else [(name, value)]
    return found
