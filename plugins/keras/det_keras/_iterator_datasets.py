"""Datasets of batches that Python code yields."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_keras._arrays import to_keras_array


class IteratorConverter:
    """Converter of iterators over batches ``x``, ``(x, y)`` or ``(x, y, sample_weight)`` to datasets.

    Args:
        samples: one or two batches, from which the shapes are inferred. The first dimension is variable, as are others
            in which the two differ.

    Raises:
        InvalidTrial: there is no batch.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        if not samples:
            raise InvalidTrial("the data has no batch; expected at least one")
        self.error: BaseException | None = None
        """Exception of the trial's code while it was read, because TensorFlow reports only its text."""
        batches = [*map(_batch, samples)]
        self._signature = tf.nest.map_structure(_spec, batches[0], batches[-1])

    def dataset(self, read: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
        """Return a dataset of an iterator's batches. ``read`` is called when the first batch is needed."""

        def noting_errors() -> Iterator[Any]:
            try:
                yield from map(_batch, read())
            except BaseException as error:
                self.error = error
                raise

        return tf.data.Dataset.from_generator(noting_errors, output_signature=self._signature)

    def skipped(self, batches: Iterator[Any], number: int) -> tf.data.Dataset:
        """Read the first ``number`` batches, and return a dataset of the remaining ones."""
        deque(islice(batches, number), maxlen=0)  # now, because reading may draw random numbers
        return self.dataset(lambda: batches)


def _batch(value: Any) -> Any:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    while parts and parts[-1] is None:
        parts = parts[:-1]
    return tuple(map(_part, parts))


def _part(value: Any) -> Any:
    """Convert lists of arrays to tuples, because a dataset makes one tensor of a list."""
    if isinstance(value, dict):
        return {name: _part(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
        return tuple(map(_part, value))
    return to_keras_array(value)


def _spec(first: Any, last: Any) -> tf.TensorSpec:
    if first.ndim != last.ndim:
        raise InvalidTrial(
            f"batches have arrays of shapes {first.shape} and {last.shape}; expected the same number of dimensions"
        )
    alike = [one if one == other else None for one, other in zip(first.shape, last.shape, strict=True)]
    return tf.TensorSpec([None, *alike[1:]] if alike else [], first.dtype)
