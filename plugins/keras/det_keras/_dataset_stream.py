"""Stream of one slot's training data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_keras._data import DatasetSource

_log = logging.getLogger("det.keras")

END_OF_DATA = (StopIteration, tf.errors.OutOfRangeError)
"""Exceptions at the end of an iterator, in eager mode and in a graph."""


class DatasetStream:
    """Endless stream of batches, and the position in it.

    Each pass over a ``tf.data.Dataset`` has its own iterator, as in ``Model.fit``. Its shuffle depends on the number of
    iterators before it. To restore a position, the stream therefore makes the same number of iterators, and reads the
    last pass up to the position. TensorFlow can save iterators, but one that was saved and restored twice shuffles
    later passes differently.
    """

    def __init__(self, source: DatasetSource) -> None:
        self._source = source
        self._iterator: Any = None
        """Iterator of the current pass, or None if the next batch begins a pass."""
        self._passes = 0
        """The number of complete passes."""
        self._into = 0
        """The number of batches read in the current pass."""

    def feed(self, step: Callable[[Any], Any]) -> Any:
        """Call a step with an iterator, of which it takes the next batch, and return its result.

        Raises:
            InvalidTrial: the data ended.
        """
        if self._iterator is None:
            self._iterator = iter(self._source.start(0))
        try:
            result = step(self._iterator)
        except END_OF_DATA as error:
            if not (self._source.repeats and self._into):
                raise InvalidTrial(
                    f"the training data ended after {self._into} batches; return a function that makes a new iterator, "
                    "or a tf.data.Dataset"
                ) from error
            self._end_pass()
            return self.feed(step)
        self._into += 1
        if self._into == self._source.length:
            self._end_pass()
        return result

    def state(self) -> dict[str, int]:
        """Return the position as JSON-compatible values."""
        return {"passes": self._passes, "into": self._into}

    def load(self, state: Mapping[str, int]) -> None:
        """Go to the position that `state` returned. Any random numbers drawn on the way are drawn in this call."""
        self._passes, self._into = state["passes"], state["into"]
        for _ in range(self._passes):
            iter(self._source.start(0))
        if not self._into:
            return
        _log.info("going to batch %d of the current pass over the training data", self._into)
        self._iterator = iter(self._source.start(self._into - 1))
        next(self._iterator, None)

    def _end_pass(self) -> None:
        self._iterator, self._into = None, 0
        self._passes += 1
