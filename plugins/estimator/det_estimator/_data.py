"""Input pipeline of one slot and the position in it."""

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
    """Endless stream of a slot's batches, as an ``input_fn``.

    The position is the number of batches that were read. Saved iterators of TensorFlow 2.15 are not exact: one that
    shuffles and prefetches, as all do by default, or that is at the end of a pass, continues at another place.

    Args:
        make: makes the dataset in the default graph.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __call__(self) -> Any:
        """Return the tensors of the next batch, in the default graph."""
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
        """Read the first ``batch`` batches, at least one, so that training continues with the next."""
        _log.info("reading the first %d batches of the training data again", batch)
        session.run(self._initializer, {self._skipped: batch - 1})
        session.run(self._read)  # reads the last of these batches, and before it those to be skipped


def wrapped_dataset(make: Callable[[], Any], context: EstimatorTrialContext, spec: str) -> Any:
    """Return the dataset of an ``input_fn``.

    Args:
        make: calls the ``input_fn``.
        context: the context of the trial.
        spec: the class of the spec that has the ``input_fn``, for errors.

    Raises:
        InvalidTrial: it returned no dataset, or did not call ``context.wrap_dataset``.
    """
    context.datasets.clear()
    dataset = make()
    if not isinstance(dataset, tf.data.Dataset):
        raise InvalidTrial(
            f"the input_fn of the {spec} returned a {type(dataset).__name__}; expected a tf.data.Dataset that yields "
            "features, or (features, labels)"
        )
    if not context.datasets:
        raise InvalidTrial(
            f"the input_fn of the {spec} did not wrap its dataset; right after creating it, before batching it, call "
            "dataset = self.context.wrap_dataset(dataset)"
        )
    context.datasets.clear()  # because references would keep the graph of every validation alive
    return dataset
