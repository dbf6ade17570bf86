"""The batches of one slot, and the place in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.errors import InvalidTrial
from det_estimator._context import EstimatorTrialContext

v1 = tf.compat.v1

_log = logging.getLogger("det.estimator")


class TrainingData:
    """The endless stream of a slot's batches, as an ``input_fn``.

    Its place is the number of batches that were read. An iterator of TensorFlow 2.15 can save a place, too, but a
    shuffled one that prefetches, as all do by default, or is at the end of a pass, goes on elsewhere.

    Args:
        make: makes the dataset in the default graph.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        """The tensors of the next batch, in the default graph."""
        self._skipped = v1.placeholder_with_default(np.int64(0), (), name="det_batches_skipped")
        iterator = v1.data.make_initializable_iterator(self._make().repeat().skip(self._skipped))
        self._initializer = iterator.initializer
        batch = iterator.get_next()
        self._read = tf.group(*tf.nest.flatten(batch))
        return batch

    def start(self, session: Any) -> None:
        """Go to the first batch."""
        session.run(self._initializer)

    def go_to(self, session: Any, batch: int) -> None:
        """Go to the batch of this number, >= 1, by reading those before it."""
        _log.info("reading the first %d batches of the training data again", batch)
        session.run(self._initializer, {self._skipped: batch - 1})
        session.run(self._read)  # what is skipped is read with the next batch, and that must happen now


def wrapped_dataset(make: Callable[[], Any], context: EstimatorTrialContext, spec: str) -> Any:
    """The dataset that an ``input_fn`` returns.

    Args:
        make: calls it.
        spec: where it is from, for errors.

    Raises:
        InvalidTrial: it is none, or did not go through ``context.wrap_dataset``.
    """
    context._datasets.clear()
    dataset = make()
    if not isinstance(dataset, tf.data.Dataset):
        raise InvalidTrial(
            f"the input_fn of the {spec} returned a {type(dataset).__name__}; expected a tf.data.Dataset that yields "
            "features, or (features, labels)"
        )
    if not context._datasets:
        raise InvalidTrial(
            f"the input_fn of the {spec} did not wrap its dataset; right after it is made, before it is batched: "
            "dataset = self.context.wrap_dataset(dataset)"
        )
    context._datasets.clear()  # which would keep the graph of every validation
    return dataset
