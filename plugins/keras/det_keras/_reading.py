"""Batches that come from Python code, as a dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_keras._arrays import standard


class Reader:
    """Makes datasets of iterators over batches ``x``, ``(x, y)`` or ``(x, y, sample_weight)``.

    Args:
        samples: one batch or two, whose shapes tell those of all: where both agree, except for the first dimension.

    Raises:
        InvalidTrial: there is none.
    """

    def __init__(self, samples: Sequence[Any]) -> None:
        if not samples:
            raise InvalidTrial("the data has no batch; expected at least one")
        self.error: BaseException | None = None
        """What the trial's code raised while it was read, which TensorFlow reports as text only."""
        batches = [*map(_batch, samples)]
        self._signature = tf.nest.map_structure(_spec, batches[0], batches[-1])

    def dataset(self, read: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
        """The batches of an iterator, which is made when the first one is needed."""

        def noting_errors() -> Iterator[Any]:
            try:
                yield from map(_batch, read())
            except BaseException as error:
                self.error = error
                raise

        return tf.data.Dataset.from_generator(noting_errors, output_signature=self._signature)

    def skipped(self, batches: Iterator[Any], number: int) -> tf.data.Dataset:
        """The batches that remain after the first ``number`` were read."""
        deque(islice(batches, number), maxlen=0)  # now, since it may draw random numbers
        return self.dataset(lambda: batches)


def _batch(value: Any) -> Any:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    while parts and parts[-1] is None:
        parts = parts[:-1]
    return tuple(map(_part, parts))


def _part(value: Any) -> Any:
    """Lists of arrays become tuples: a list within a dataset is one tensor."""
    if isinstance(value, dict):
        return {name: _part(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)) and value and hasattr(value[0], "shape"):
        return tuple(map(_part, value))
    return standard(value)


def _spec(first: Any, last: Any) -> tf.TensorSpec:
    if first.ndim != last.ndim:
        raise InvalidTrial(
            f"batches have arrays of shapes {first.shape} and {last.shape}; expected as many dimensions in all"
        )
    alike = [one if one == other else None for one, other in zip(first.shape, last.shape, strict=True)]
    return tf.TensorSpec([None, *alike[1:]] if alike else [], first.dtype)
