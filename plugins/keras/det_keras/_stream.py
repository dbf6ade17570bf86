"""The training data of one slot, pass after pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_keras._data import Source

_log = logging.getLogger("det.keras")

END_OF_DATA = (StopIteration, tf.errors.OutOfRangeError)
"""Of an iterator, eagerly and in a graph."""


class Stream:
    """Batches without end, and the place among them.

    Each pass over a ``tf.data.Dataset`` has an iterator of its own, as in ``Model.fit``; how one shuffles depends on
    how many were made before it. So a place is found again by making as many, and reading the present pass up to there.
    TensorFlow could save an iterator instead, but what was saved and restored twice shuffles later passes otherwise.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._iterator: Any = None
        """None: the next batch begins a pass."""
        self._passes = 0
        """Made whole."""
        self._into = 0
        """Batches of the present pass that were read."""

    def feed(self, step: Callable[[Any], Any]) -> Any:
        """Call a step that takes the next batch of the iterator that it is given.

        Raises:
            InvalidTrial: there is none.
        """
        if self._iterator is None:
            self._iterator = iter(self._source.start(0))
        try:
            result = step(self._iterator)
        except END_OF_DATA as error:
            if not (self._source.repeats and self._into):
                raise InvalidTrial(
                    f"the training data ended after {self._into} batches; return a function that makes it anew, or a "
                    "tf.data.Dataset"
                ) from error
            self._end_pass()
            return self.feed(step)
        self._into += 1
        if self._into == self._source.length:
            self._end_pass()
        return result

    def state(self) -> dict[str, int]:
        """The place, in types that JSON has."""
        return {"passes": self._passes, "into": self._into}

    def load(self, state: Mapping[str, int]) -> None:
        """Go to a place; what random numbers are drawn on the way are drawn now."""
        self._passes, self._into = state["passes"], state["into"]
        for _ in range(self._passes):
            iter(self._source.start(0))
        if not self._into:
            return
        _log.info("going to batch %d of the present pass over the training data", self._into)
        self._iterator = iter(self._source.start(self._into - 1))
        next(self._iterator, None)

    def _end_pass(self) -> None:
        self._iterator, self._into = None, 0
        self._passes += 1
