"""Averages of training metrics over batches and workers, and summaries of arrays."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

__all__ = ["average_metrics", "merge_rank_metrics", "summarize_numbers"]


@dataclass(frozen=True)
class NumberSummary:
    """Summary of the numbers in a metric, of which there is at least one."""

    count: int
    """How many numbers there are, at least 1."""
    min: float
    """Least number."""
    max: float
    """Greatest number."""
    sum: float
    """Sum of the numbers."""

    @property
    def mean(self) -> float:
        """Return the mean of the numbers."""
        return self.sum / self.count


def summarize_numbers(value: Any) -> NumberSummary | None:
    """Return a summary of a number, or of all numbers in an array or in nested lists.

    None if there is no number, or anything else than numbers.
    """
    numpy = sys.modules.get("numpy")  # not imported here, as only trials with arrays need it
    if numpy and not isinstance(value, Real):
        try:
            array = numpy.asarray(value)
        except ValueError:  # lists of different lengths
            array = numpy.empty(0)
        if array.size and array.dtype.kind in "biuf":
            with numpy.errstate(all="ignore"):
                return NumberSummary(array.size, *map(float, (array.min(), array.max(), array.sum(dtype=float))))
    try:
        numbers = list(_flat(value))
    except (OverflowError, TypeError):
        return None
    return NumberSummary(len(numbers), min(numbers), max(numbers), sum(numbers)) if numbers else None


def summarize_arrays(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics with summaries in place of arrays and lists of numbers, as ``{count, min, max, mean}``.

    An array of one number becomes the number.
    """
    return {name: value if type(value) is float else _summarized(value) for name, value in metrics.items()}


def average_metrics(batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of every numeric metric over all batches that have it and all elements of arrays and lists.

    Metrics of other types are left out.
    """
    sums: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for metrics in batch_metrics:
        for name, value in metrics.items():
            if type(value) is float:
                sums.setdefault(name, []).append(value)
                counts[name] += 1
            elif found := summarize_numbers(value):
                sums.setdefault(name, []).append(found.sum)
                counts[name] += found.count
    return {name: sum(of_batches) / counts[name] for name, of_batches in sums.items()}


def merge_rank_metrics(of_ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the metrics of one batch from all workers.

    Numbers are averaged, and arrays and lists of equal shape are averaged element by element. Those of different
    lengths, such as losses per record, are concatenated to a list. For other types the first worker's value is kept.

    Args:
        of_ranks: metrics of each worker, by rank. A worker may lack some of them.
    """
    names = dict.fromkeys(name for metrics in of_ranks for name in metrics)
    return {name: _merge_values([metrics[name] for metrics in of_ranks if name in metrics]) for name in names}


def _merge_values(values: Sequence[Any]) -> Any:
    if numbers := [float(value) for value in values if isinstance(value, Real)]:
        return sum(numbers) / len(numbers)
    if all(map(_is_array, values)) and len({value.shape for value in values}) == 1:
        return sum(values) / len(values)
    lists = [value.tolist() if _is_array(value) else value for value in values]
    lists = [value for value in lists if isinstance(value, (list, tuple))]
    if not lists:
        return values[0]
    if len(set(map(len, lists))) == 1:
        return [_merge_values(items) for items in zip(*lists, strict=True)]
    return [item for items in lists for item in items]


def _summarized(value: Any) -> Any:
    found = summarize_numbers(value) if isinstance(value, (list, tuple)) or _is_array(value) else None
    if found is None:
        return value
    return found.sum if found.count == 1 else {name: getattr(found, name) for name in ("count", "min", "max", "mean")}


def _is_array(value: Any) -> bool:
    return hasattr(value, "tolist") and hasattr(value, "shape")


def _flat(value: Any) -> Iterator[float]:
    if isinstance(value, Real):
        yield float(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        raise TypeError(value)
