"""Settings of a ``ConfigProto``, which trials for TensorFlow 1 return."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_log = logging.getLogger("det.keras")


def _grow(allow: bool) -> None:
    for gpu in tf.config.get_visible_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, allow)


_SUPPORTED: dict[str, Callable[[Any], None]] = {
    "intra_op_parallelism_threads": tf.config.threading.set_intra_op_parallelism_threads,
    "inter_op_parallelism_threads": tf.config.threading.set_inter_op_parallelism_threads,
    "allow_soft_placement": tf.config.set_soft_device_placement,
    "gpu_options.allow_growth": _grow,
}


def apply_session_config(config: tf.compat.v1.ConfigProto) -> None:
    """Apply the settings that TensorFlow 2 has, which are threads, soft placement and growth of GPU memory.

    A warning names all others.
    """
    ignored = []
    for name, value in _set_fields(config):
        try:
            _SUPPORTED[name](value)
        except (KeyError, RuntimeError):  # RuntimeError: TensorFlow already ran an operation
            ignored.append(name)
    if ignored:
        _log.warning(
            "session_config() sets %s, which has no effect; set it with tf.config at the top of the trial's module",
            ", ".join(ignored),
        )


def _set_fields(message: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field, value in message.ListFields():
        name = prefix + field.name
        nested = field.type == field.TYPE_MESSAGE and field.label != field.LABEL_REPEATED
        found += _set_fields(value, f"{name}.") if nested else [(name, value)]
    return found
