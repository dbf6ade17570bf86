"""Arrays as datasets, shuffled by a function of (seed, epoch)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.errors import InvalidTrial

KINDS = (np.ndarray, tf.Tensor)


@dataclass(frozen=True)
class Layout:
    """Which records make up the batches of one slot."""

    records: int
    """That are used, of all slots."""
    size: int
    """Of a batch."""
    rank: int
    slots: int

    @classmethod
    def of(cls, records: int, size: int, rank: int, slots: int) -> Layout:
        """Leave out the last records if not every slot would get one of them."""
        rest = records % (size * slots)
        return cls(records - rest if rest < slots else records, size, rank, slots)

    @property
    def batches(self) -> int:
        return -(-self.records // (self.size * self.slots))

    def share(self, order: tf.Tensor) -> tf.data.Dataset:
        """This slot's batches of record numbers; those of all slots together are batches of the whole order."""
        own = order[: self.records][self.rank :: self.slots]
        return tf.data.Dataset.from_tensor_slices(own).batch(self.size)


def tensors(data: Any, name: str) -> Any:
    """The arrays as tensors, floats in Keras's precision, without parts that are None.

    Raises:
        InvalidTrial: they are of different lengths, or not all arrays.
    """
    parts = data if isinstance(data, tuple) else (data,)
    while parts and parts[-1] is None:
        parts = parts[:-1]
    converted = tuple(map(_tensors, parts))
    lengths = {one.shape[0] if one.shape.rank else None for one in tf.nest.flatten(converted)}
    if len(lengths) != 1 or None in lengths:
        raise InvalidTrial(
            f"build_{name}_data_loader() returned arrays of the lengths {sorted(map(str, lengths))}; expected one "
            "length of them all, as in (x, y)"
        )
    return converted


def endless(arrays: Any, layout: Layout, seed: int | None, first: int) -> tf.data.Dataset:
    """All epochs from batch ``first`` on; not shuffled if ``seed`` is None."""

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(tf.constant(len(tf.nest.flatten(arrays)[0]), tf.int64))
        if seed is not None:
            order = tf.random.experimental.stateless_shuffle(order, seed=[tf.constant(seed, tf.int64), number])
        return layout.share(order)

    begun, into = divmod(first, layout.batches)
    epochs = tf.data.Dataset.range(begun, np.iinfo(np.int64).max).flat_map(epoch)
    return _records(arrays, epochs.skip(into))


def one_pass(arrays: Any, layout: Layout) -> tf.data.Dataset:
    """This slot's records in their order, all of them."""
    records = tf.data.Dataset.range(layout.rank, len(tf.nest.flatten(arrays)[0]), layout.slots)
    return _records(arrays, records.batch(layout.size))


def standard(value: Any) -> Any:
    """An array as Keras takes it: floats in its precision."""
    array = np.asarray(value)
    return array.astype(tf.keras.backend.floatx()) if np.issubdtype(array.dtype, np.floating) else array


def _tensors(part: Any) -> Any:
    if isinstance(part, (list, tuple)) and part and not isinstance(part[0], KINDS):
        return tf.convert_to_tensor(standard(part))  # plain numbers
    if isinstance(part, list):
        part = tuple(part)  # a list within a dataset is one tensor
    return tf.nest.map_structure(
        lambda one: one if isinstance(one, tf.Tensor) else tf.convert_to_tensor(standard(one)), part
    )


def _records(arrays: Any, numbers: tf.data.Dataset) -> tf.data.Dataset:
    def gather(indices: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda array: tf.gather(array, indices), arrays)

    return numbers.map(gather).prefetch(tf.data.AUTOTUNE)
