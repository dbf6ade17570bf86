"""Averages of training metrics over batches and workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any


def average_metrics(batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of every numeric metric over all batches that have it and all elements of lists.

    Metrics of other types are left out.
    """
    values: dict[str, list[float]] = {}
    for metrics in batch_metrics:
        for name, value in metrics.items():
            if type(value) is float:
                values.setdefault(name, []).append(value)
            elif numbers := flatten_numbers(value):
                values.setdefault(name, []).extend(numbers)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def merge_rank_metrics(of_ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the metrics of one batch from all workers.

    Numbers are averaged, and lists of equal shape are averaged element by element. Lists of different lengths, such as
    losses per record, are concatenated. For other types the first worker's value is kept.

    Args:
        of_ranks: metrics of each worker, by rank. A worker may lack some of them.
    """
    names = dict.fromkeys(name for metrics in of_ranks for name in metrics)
    return {name: _merge_values([metrics[name] for metrics in of_ranks if name in metrics]) for name in names}


def _merge_values(values: Sequence[Any]) -> Any:
    if numbers := [float(value) for value in values if isinstance(value, Real)]:
        return sum(numbers) / len(numbers)
    lists = [value for value in values if isinstance(value, (list, tuple))]
    if not lists:
        return values[0]
    if len(set(map(len, lists))) == 1:
        return [_merge_values(items) for items in zip(*lists, strict=True)]
    return [item for items in lists for item in items]


def flatten_numbers(value: Any) -> list[float]:
    """Return all numbers in nested lists, or none if the lists contain anything else."""
    try:
        return list(_flat(value))
    except TypeError:
        return []


def _flat(value: Any) -> Iterator[float]:
    if isinstance(value, Real):
        yield float(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        raise TypeError(value)
