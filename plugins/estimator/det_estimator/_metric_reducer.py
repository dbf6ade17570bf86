"""Validation metrics computed in Python over all batches of all slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
NO_BATCH = "no batch yet"
"""State of a slot that got no batch."""
_EXPECTED = "expected a tensor, a list of tensors, or a dict of tensors"


class MetricReducer(ABC):
    """Base class for metrics that every slot accumulates batch by batch. Slots exchange only the accumulated values.

    Every validation starts with a copy of the object that was passed to ``context.make_metric``.
    """

    @abstractmethod
    def accumulate(self, metric: Any) -> Any:
        """Add one batch.

        Args:
            metric: the value of the batch, an array or a list or dict of arrays.

        Returns:
            The accumulated value so far. `cross_slot_reduce` gets the value that each slot returned last.
        """

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Compute the metric.

        Args:
            per_slot_metrics: the accumulated value of each slot, without slots that got no batch.

        Returns:
            The metric, a value that converts to the ``numpy_dtype`` of ``context.make_metric``.
        """


class _Collecting(MetricReducer):
    """Reducer that collects the values of all batches for a function."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self._values: list[Any] = []

    def accumulate(self, metric: Any) -> list[Any]:
        self._values.append(metric)
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        turns = zip_longest(*per_slot_metrics, fillvalue=NO_BATCH)
        return self._function([value for value in chain.from_iterable(turns) if value is not NO_BATCH])


class Accumulator:
    """One metric of one validation on this slot. Use `make_accumulator` to make one."""

    def __init__(self, reducer: MetricReducer) -> None:
        self._reducer = reducer
        self._settled: Any = NO_BATCH
        self.state: Any = NO_BATCH
        """The value that the reducer has accumulated."""

    def settle(self, states: Sequence[Any]) -> None:
        """Compute the metric from the states of all slots."""
        present = [state for state in states if not _is_no_batch(state)]
        if present:
            self._settled = self._reducer.cross_slot_reduce(present)

    def operations(self, metric: Any, dtype: Any) -> tuple[Any, Any]:
        """Return (value, update), the operations of the metric. They keep this object alive as long as their graph."""
        tensors, packed = _flattened(metric)

        def update(*arrays: Any) -> None:
            self.state = self._reducer.accumulate(packed(arrays))

        def value() -> Any:
            if self._settled is NO_BATCH:  # outside of det's training, in an evaluation that the user started
                self.settle([self.state])
            return np.array(self._settled).astype(dtype)

        return v1.py_func(value, [], tf.as_dtype(np.dtype(dtype))), v1.py_func(update, tensors, [])


def make_accumulator(reducer: Any) -> Accumulator:
    """Return an accumulator for a `MetricReducer` or a function.

    Raises:
        TypeError: the argument is neither.
    """
    if isinstance(reducer, MetricReducer):
        return Accumulator(deepcopy(reducer))
    if not callable(reducer):
        raise TypeError(f"make_metric() got the reducer {reducer!r}; expected a function or a MetricReducer")
    return Accumulator(_Collecting(reducer))


def _is_no_batch(state: Any) -> bool:
    return isinstance(state, str) and state == NO_BATCH  # states of other slots are copies


def _flattened(metric: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the tensors of a metric, and a function that arranges their values like the metric."""
    packed: Callable[[Sequence[Any]], Any] = list
    if isinstance(metric, dict):
        tensors, packed = list(metric.values()), lambda arrays: dict(zip(metric, arrays, strict=True))
    elif isinstance(metric, list):
        tensors = metric
    else:
        tensors, packed = [metric], lambda arrays: arrays[0]
    for tensor in tensors:
        if not isinstance(tensor, (tf.Tensor, tf.Variable)):
            raise TypeError(f"make_metric() got {metric!r}; {_EXPECTED}")
    return tensors, packed
