"""Validation metrics that are computed in Python, over all batches of all slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
NOTHING = "no batch yet"
"""The state of a slot that got no batch."""
_EXPECTED = "expected a tensor, a list of tensors, or a dict of tensors"


class MetricReducer(ABC):
    """A metric that every slot accumulates by itself, batch by batch; only what it accumulated is exchanged.

    Every validation begins with a copy of the object that ``context.make_metric`` got.
    """

    @abstractmethod
    def accumulate(self, metric: Any) -> Any:
        """Take one batch into account.

        Args:
            metric: its value, an array or a list or dict of arrays.

        Returns:
            What was accumulated so far. What the last call of a slot returned goes to `cross_slot_reduce`.
        """

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """The metric, from what each slot accumulated; slots that got no batch are left out."""


class _Collecting(MetricReducer):
    """Collects the values of all batches for a function."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self._values: list[Any] = []

    def accumulate(self, metric: Any) -> list[Any]:
        self._values.append(metric)
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        turns = zip_longest(*per_slot_metrics, fillvalue=NOTHING)
        return self._function([value for value in chain.from_iterable(turns) if value is not NOTHING])


class Accumulator:
    """One metric of one validation, on this slot. Made by `accumulating`."""

    def __init__(self, reducer: MetricReducer) -> None:
        self._reducer = reducer
        self._settled: Any = NOTHING
        self.state: Any = NOTHING
        """What the reducer accumulated."""

    def settle(self, states: Sequence[Any]) -> None:
        """Compute the metric from the states of all slots."""
        present = [state for state in states if not _is_nothing(state)]
        if present:
            self._settled = self._reducer.cross_slot_reduce(present)

    def operations(self, metric: Any, dtype: Any) -> tuple[Any, Any]:
        """(value, update), which keep this object alive as long as their graph."""
        tensors, packed = _flattened(metric)

        def update(*arrays: Any) -> None:
            self.state = self._reducer.accumulate(packed(arrays))

        def value() -> Any:
            if self._settled is NOTHING:  # outside of det's training, in an evaluation of one's own
                self.settle([self.state])
            return np.array(self._settled).astype(dtype)

        return v1.py_func(value, [], tf.as_dtype(np.dtype(dtype))), v1.py_func(update, tensors, [])


def accumulating(reducer: Any) -> Accumulator:
    """An accumulator by a reducer or a function."""
    if isinstance(reducer, MetricReducer):
        return Accumulator(deepcopy(reducer))
    if not callable(reducer):
        raise TypeError(f"make_metric() got the reducer {reducer!r}; expected a function or a MetricReducer")
    return Accumulator(_Collecting(reducer))


def _is_nothing(state: Any) -> bool:
    return isinstance(state, str) and state == NOTHING  # states of other slots are copies


def _flattened(metric: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """The tensors of a metric, and what puts their values in its form."""
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
