"""Helper functions that example code imports from ``determined.util``."""

from __future__ import annotations

import copy
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from det_core.errors import StorageError

__all__ = ["download_gcs_blob_with_backoff", "make_metrics", "merge_dicts"]


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: float = 32) -> bytes:
    """Download an object of Google Cloud Storage, and retry after errors.

    Args:
        blob: a ``google.cloud.storage.Blob``.
        n_retries: maximum number of attempts, >= 1.
        max_backoff: maximum number of seconds between two attempts.

    Raises:
        StorageError: every attempt failed. The cause is the error of the last one.
    """
    for attempt in range(n_retries):
        try:
            data: bytes = blob.download_as_bytes()
        except Exception as error:  # noqa: BLE001  # clients of object stores raise errors of many libraries
            last = error
            if attempt + 1 < n_retries:
                time.sleep(min(2**attempt + random.random(), max_backoff))  # noqa: S311
        else:
            return data
    raise StorageError(f"downloading {blob!r} failed {n_retries} times; the last error was: {last!r}") from last


def make_metrics(num_inputs: int | None, batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metrics of batches together with their means.

    Args:
        num_inputs: number of records, or None to leave it out.
        batch_metrics: metrics of each batch, which all have the same names.

    Returns:
        ``batch_metrics``, ``avg_metrics`` and ``num_inputs``. The mean of a metric without numbers is None.

    Raises:
        ValueError: the names differ between batches.
    """
    names = batch_metrics[0].keys() if batch_metrics else set()
    for number, metrics in enumerate(batch_metrics):
        if metrics.keys() != names:
            raise ValueError(
                f"batch {number} has the metrics {sorted(metrics)} but batch 0 has {sorted(names)}; "
                "expected the same names for every batch"
            )
    means = {name: _mean([metrics[name] for metrics in batch_metrics]) for name in names}
    made: dict[str, Any] = {"batch_metrics": list(batch_metrics), "avg_metrics": means}
    return made if num_inputs is None else {**made, "num_inputs": num_inputs}


def merge_dicts(base_dict: Mapping[Any, Any], source_dict: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a copy of a dict with values of another one, merging dicts recursively.

    Args:
        base_dict: dict to copy.
        source_dict: values that take precedence.
    """
    merged = copy.deepcopy(dict(base_dict))
    for key, value in source_dict.items():
        inner = merged.get(key)
        merged[key] = merge_dicts(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged


def _mean(values: Sequence[Any]) -> float | None:
    try:
        return statistics.fmean(float(value) for value in values if value is not None)
    except (TypeError, ValueError):  # no numbers
        return None
