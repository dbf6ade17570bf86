"""Sequences that old Keras trials make from arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from determined._exceptions import InvalidDataTypeException

__all__ = ["ArrayLikeAdapter"]


class ArrayLikeAdapter(tf.keras.utils.Sequence):  # type: ignore[misc]
    """Batches of arrays.

    Args:
        x: inputs, an array, or a list or dict of them.
        y: targets, likewise.
        batch_size: number of records per batch.
        sample_weights: weight of each record.
        drop_leftovers: whether to leave out the last batch if it is smaller.

    Raises:
        InvalidDataTypeException: ``x`` or ``y`` is none of these.
        ValueError: the numbers of records differ, or are less than a batch.
    """

    def __init__(
        self, x: Any, y: Any, batch_size: int, sample_weights: Any = None, drop_leftovers: bool = False
    ) -> None:
        for data in (x, y):
            if not _arrays(data) or not all(isinstance(array, np.ndarray) for array in _arrays(data)):
                raise InvalidDataTypeException(type(data), "expected a NumPy array, or a list or dict of them")
        self._parts = (x, y) if sample_weights is None else (x, y, sample_weights)
        lengths = {len(array) for part in self._parts for array in _arrays(part)}
        self._length = min(lengths)
        if len(lengths) > 1 or self._length < batch_size:
            raise ValueError(f"the arrays have {lengths} records; expected one number, at least {batch_size}, a batch")
        self._batch_size = batch_size
        self._round = math.floor if drop_leftovers else math.ceil

    def __len__(self) -> int:
        return self._round(self._length / self._batch_size)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        batch = slice(index * self._batch_size, (index + 1) * self._batch_size)
        return tuple(_take(part, batch) for part in self._parts)


def _arrays(data: Any) -> list[Any]:
    return list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else [data]


def _take(data: Any, batch: slice) -> Any:
    if isinstance(data, dict):
        return {name: array[batch] for name, array in data.items()}
    return [array[batch] for array in data] if isinstance(data, list) else data[batch]
