"""Reduction of metrics over validation batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from det_core.errors import InvalidTrial


class Reducer(Enum):
    """Reduction of a metric over the validation batches, and over all elements of arrays, to one number.

    To keep arrays, use `PyTorchTrialContext.wrap_reducer`. For a mean over records, return sums and counts, or use
    ``evaluate_full_dataset``.
    """

    AVG = "avg"
    """Mean over batches. A last batch with fewer records has the same weight as a full one."""
    SUM = "sum"
    """Sum over batches."""
    MAX = "max"
    """Maximum over batches."""
    MIN = "min"
    """Minimum over batches."""


_FUNCTIONS: dict[Reducer, Callable[..., Any]] = {
    Reducer.AVG: np.mean,
    Reducer.SUM: np.sum,
    Reducer.MAX: np.max,
    Reducer.MIN: np.min,
}


def reduce_metrics(batches: Sequence[Mapping[str, Any]], reducer: Reducer | Mapping[str, Reducer]) -> dict[str, Any]:
    """Reduce each metric over all batches to one value.

    Args:
        batches: metrics of each batch, at least one batch. Values are numbers, or lists of numbers of one shape.
        reducer: reducer of all metrics, or a mapping with one reducer for every metric and no further names.

    Returns:
        Metric name -> number.

    Raises:
        InvalidTrial: metric names differ between batches or from the reducer's names, or values cannot be reduced.
    """
    names = batches[0].keys()
    for number, metrics in enumerate(batches):
        if metrics.keys() != names:
            raise InvalidTrial(
                f"evaluate_batch() returned the metrics {sorted(names)} for batch 0 but {sorted(metrics)} "
                f"for batch {number}; return the same names for every batch"
            )
    reducers = _per_name(reducer, names)
    return {name: _reduce(name, reducers[name], [metrics[name] for metrics in batches]) for name in names}


def _per_name(reducer: Any, names: Any) -> Mapping[str, Reducer]:
    reducers = reducer if isinstance(reducer, Mapping) else dict.fromkeys(names, reducer)
    for value in reducers.values():
        if not isinstance(value, Reducer):
            raise InvalidTrial(
                f"evaluation_reducer() returned {reducer!r}; expected a Reducer such as Reducer.AVG, "
                "or a dict of metric names to Reducers"
            )
    if reducers.keys() != set(names):
        raise InvalidTrial(
            f"evaluation_reducer() has reducers for {sorted(reducers)}, but the metrics are {sorted(names)}; "
            "the names must be the same"
        )
    return reducers


def _reduce(name: str, reducer: Reducer, values: Sequence[Any]) -> Any:
    try:
        stacked = np.stack([np.asarray(value) for value in values])
    except ValueError as error:
        raise InvalidTrial(
            f"the validation metric {name!r} changes its shape between batches ({error}); return one shape"
        ) from None
    if stacked.dtype.kind not in "biuf":
        raise InvalidTrial(f"the validation metric {name!r} is {values[0]!r}; expected a number or numbers to reduce")
    return _FUNCTIONS[reducer](stacked).item()
