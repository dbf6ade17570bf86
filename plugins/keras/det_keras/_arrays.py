"""Datasets made of arrays, in an order that is a function of (seed, epoch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.errors import InvalidTrial

ARRAY_TYPES = (np.ndarray, tf.Tensor)


@dataclass(frozen=True)
class BatchLayout:
    """Assignment of records to the batches of one slot."""

    records: int
    """The number of records that are used, over all slots."""
    size: int
    """The number of records in a batch of one slot."""
    rank: int
    slots: int

    @classmethod
    def of(cls, records: int, size: int, rank: int, slots: int) -> BatchLayout:
        """Return the layout that drops the last records if they are too few for a batch on every slot."""
        rest = records % (size * slots)
        return cls(records - rest if rest < slots else records, size, rank, slots)

    @property
    def batches(self) -> int:
        """The number of batches per epoch on each slot."""
        return -(-self.records // (self.size * self.slots))

    def share(self, order: tf.Tensor) -> tf.data.Dataset:
        """Return this slot's batches of an epoch, as record numbers.

        Together, the batches of all slots with the same number are one batch of the whole order.
        """
        own = order[: self.records][self.rank :: self.slots]
        return tf.data.Dataset.from_tensor_slices(own).batch(self.size)


def to_keras_tensors(data: Any, name: str) -> Any:
    """Return arrays as tensors, with floats in Keras's precision and without trailing parts that are None.

    Args:
        data: an array or a tuple of arrays, which may be nested in lists, tuples and dicts.
        name: training or validation, for errors.

    Raises:
        InvalidTrial: the arrays have different lengths, or something is not an array.
    """
    parts = data if isinstance(data, tuple) else (data,)
    while parts and parts[-1] is None:
        parts = parts[:-1]
    converted = tuple(map(_tensors, parts))
    lengths = {one.shape[0] if one.shape.rank else None for one in tf.nest.flatten(converted)}
    if len(lengths) != 1 or None in lengths:
        raise InvalidTrial(
            f"build_{name}_data_loader() returned arrays with lengths {sorted(map(str, lengths))}; expected the same "
            "length for all, as in (x, y)"
        )
    return converted


def endless_batches(arrays: Any, layout: BatchLayout, seed: int | None, first: int) -> tf.data.Dataset:
    """Return the batches of all epochs, from batch ``first`` on. They are not shuffled if ``seed`` is None."""

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(tf.constant(len(tf.nest.flatten(arrays)[0]), tf.int64))
        if seed is not None:
            order = tf.random.experimental.stateless_shuffle(order, seed=[tf.constant(seed, tf.int64), number])
        return layout.share(order)

    begun, into = divmod(first, layout.batches)
    epochs = tf.data.Dataset.range(begun, np.iinfo(np.int64).max).flat_map(epoch)
    return _records(arrays, epochs.skip(into))


def one_pass(arrays: Any, layout: BatchLayout) -> tf.data.Dataset:
    """Return all of this slot's records once, in order."""
    records = tf.data.Dataset.range(layout.rank, len(tf.nest.flatten(arrays)[0]), layout.slots)
    return _records(arrays, records.batch(layout.size))


def to_keras_array(value: Any) -> Any:
    """Return a NumPy array with floats in Keras's precision."""
    array = np.asarray(value)
    return array.astype(tf.keras.backend.floatx()) if np.issubdtype(array.dtype, np.floating) else array


def _tensors(part: Any) -> Any:
    if isinstance(part, (list, tuple)) and part and not isinstance(part[0], ARRAY_TYPES):
        return tf.convert_to_tensor(to_keras_array(part))  # plain numbers
    if isinstance(part, list):
        part = tuple(part)  # a list within a dataset is one tensor
    return tf.nest.map_structure(
        lambda one: one if isinstance(one, tf.Tensor) else tf.convert_to_tensor(to_keras_array(one)), part
    )


def _records(arrays: Any, numbers: tf.data.Dataset) -> tf.data.Dataset:
    def gather(indices: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda array: tf.gather(array, indices), arrays)

    return numbers.map(gather).prefetch(tf.data.AUTOTUNE)
