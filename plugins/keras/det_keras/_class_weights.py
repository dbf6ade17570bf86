"""Class weights of training records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial


def weigh_classes(class_weight: Mapping[int, float]) -> Callable[..., Any]:
    """Return a function for ``Dataset.map`` that multiplies the weights of a batch's records by those of their classes.

    Raises:
        InvalidTrial: the classes are not 0, 1, 2 and so on.
    """
    if sorted(class_weight) != list(range(len(class_weight))):
        raise InvalidTrial(f"class_weight is {dict(class_weight)}; expected weights for the classes 0, 1, 2, ...")
    table = tf.constant([class_weight[one] for one in range(len(class_weight))], tf.keras.backend.floatx())

    def weigh(*batch: Any) -> Any:
        x, y, weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        if not isinstance(y, tf.Tensor):
            raise InvalidTrial("class_weight needs batches (x, y) with one tensor as targets")
        weights = tf.gather(table, _classes(y))
        return x, y, weights if weight is None else weights * tf.cast(weight, weights.dtype)

    return weigh


def _classes(y: tf.Tensor) -> tf.Tensor:
    """Return the class numbers of targets, which may be one-hot along the last dimension."""
    if y.shape.rank is not None and y.shape.rank > 1:
        if y.shape[-1] != 1:
            return tf.argmax(y, axis=-1)
        y = tf.squeeze(y, axis=-1)
    return tf.cast(tf.round(y) if y.dtype.is_floating else y, tf.int64)
