"""Conversion of the metrics that ``train_batch`` and ``evaluate_*`` return to JSON-compatible values and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from det_core.errors import InvalidTrial

_PLAIN = (str, bool, int, float, type(None))
_TYPES = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64}
"""Types of arrays of numbers by kind."""


def training_metrics(returned: Any) -> dict[str, Any]:
    """Return the metrics of one training batch. `materialize_metrics` converts those of several batches at once.

    Args:
        returned: return value of ``train_batch``.

    Returns:
        Metric name -> value. Tensors on an accelerator are copies that stay on it.

    Raises:
        InvalidTrial: ``returned`` is neither a loss nor a dict of metrics, or has a value that is not a metric.
    """
    if not isinstance(returned, dict):
        if not isinstance(returned, torch.Tensor):
            raise no_loss(returned, "the loss, or a dict of metric names to values")
        returned = {"loss": returned}
    held = {}
    for name, value in returned.items():  # a loop and a fast path for most metrics, because this happens in each batch
        is_plain = type(value) is torch.Tensor and value.is_cpu and not value.ndim
        held[name] = value.item() if is_plain else _held(name, value)
    return held


def no_loss(returned: Any, expected: str) -> InvalidTrial:
    """Return the error for a return value of ``train_batch`` that has no usable loss."""
    return InvalidTrial(f"train_batch() returned {returned!r}; expected {expected}")


def validation_metrics(returned: Any, method: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    """Return the metrics of one validation batch, or of the whole validation set, which `materialize_metrics` converts.

    Args:
        returned: return value of ``method``.
        method: name of the trial's method, for error messages.
        may_be_empty: whether an empty dict is valid, because reducers supply metrics too.

    Returns:
        Metric name -> value. Tensors on an accelerator are copies that stay on it.

    Raises:
        InvalidTrial: ``returned`` is not a dict, is empty, or has a value that is not a metric.
    """
    if not isinstance(returned, dict) or not (returned or may_be_empty):
        raise InvalidTrial(f"{method}() returned {returned!r}; expected a dict of metric names to values")
    return {name: _held(name, value) for name, value in returned.items()}


def materialize_metrics(rows: Sequence[dict[str, Any]]) -> None:
    """Replace the remaining tensors by numbers and arrays, in place.

    Values are copied from the accelerator in one transfer per metric and shape.

    Args:
        rows: one dict of metrics per batch.
    """
    pending: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        for name, value in row.items():
            if type(value) is not float and isinstance(value, torch.Tensor):
                pending.setdefault((name, value.shape, value.dtype, value.device), []).append(row)
    for (name, *_), holders in pending.items():
        values = torch.stack([row[name] for row in holders])
        plain = values.tolist() if values.ndim == 1 or values.is_complex() else _to_array(values)
        for row, value in zip(holders, plain, strict=True):
            row[name] = value


def metric_to_json(name: str, value: Any) -> Any:
    """Return a metric as JSON-compatible values. Tensors and arrays become numbers and nested lists.

    Args:
        name: name of the metric, for error messages.
        value: value to convert.

    Raises:
        InvalidTrial: ``value`` has a type that is not supported, or contains such a value.
    """
    if isinstance(value, np.generic):  # first, since np.float64 is a float too
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return metric_to_json(name, value.tolist())
    if isinstance(value, (list, tuple)):
        return [metric_to_json(name, item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: metric_to_json(name, item) for key, item in value.items()}
    raise InvalidTrial(
        f"the metric {name!r} is {value!r} of type {type(value).__name__}; expected a number, a string, None, "
        "a tensor or an array, or a list or dict of them"
    )


def to_numpy_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain metrics with numbers as NumPy scalars and lists of numbers as arrays."""
    return {name: _as_numpy(value) for name, value in metrics.items()}


def _as_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return to_numpy_metrics(value)
    if isinstance(value, bool):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return value
    return array[()] if array.dtype.kind in "biuf" else value


def _held(name: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.is_cpu:  # Reading the value here would stall training. The next batch may change it, so clone it.
            return value.detach().clone()
        if value.ndim == 0:
            return value.item()
        if not value.is_complex():
            return _to_array(value)
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in _TYPES:
        return _to_array(value)
    return metric_to_json(name, value)


def _to_array(value: Any) -> Any:
    """Return a tensor or an array of numbers as an array, which is a copy, of the type that a list of them has."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16
    return value.astype(_TYPES[value.dtype.kind])
