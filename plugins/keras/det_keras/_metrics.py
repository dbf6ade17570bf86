"""Conversion of Keras's metrics to JSON-compatible values, and their reduction over slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from det_core.core import DistributedContext
from det_core.core.rank_agreement import all_ranks_group
from det_core.errors import InvalidTrial
from det_core.trial.metric_averages import merge_rank_metrics


def metrics_to_json(logs: Any, step: str) -> dict[str, Any]:
    """Return the metrics of a step as JSON-compatible values. Tensors become numbers, text and nested lists.

    Raises:
        InvalidTrial: the step returned something else than a dict of metrics.
    """
    if not isinstance(logs, dict):
        raise InvalidTrial(f"{step}() of the model returned {logs!r}; expected a dict of metric names to tensors")
    return {name: _value_to_json(name, value) for name, value in logs.items()}


def reset_each_batch(model: tf.keras.Model) -> None:
    """Make training steps return the metrics of their batch, and not the means since the start of the epoch.

    The reset is part of the step, so it is compiled with it.
    """
    step = model.train_step

    def train_step(data: Any) -> Any:
        model.reset_metrics()
        return step(data)

    model.train_step = train_step


def reduce_over_slots(
    model: tf.keras.Model, logs: Mapping[str, Any], batches: int, distributed: DistributedContext
) -> dict[str, Any]:
    """Return the metrics of a validation over the batches of all slots. All slots must call this.

    Args:
        model: the model that was evaluated.
        logs: the metrics of this slot.
        batches: the number of batches of this slot, which may differ between slots and may be 0.
        distributed: the context for communication between the slots.
    """
    if distributed.size == 1:
        return dict(logs)
    states = [[[one.numpy() for one in metric.weights] for metric in model.metrics], dict(logs)]
    others = [state for count, state in distributed.allgather((batches, states)) if count]
    results = all_ranks_group(distributed).together(lambda: _merged(model, others) if batches else {})
    return next(filter(None, results), {})  # a slot without a batch may not know the names of the metrics


def _merged(model: tf.keras.Model, states: Sequence[Any]) -> dict[str, Any]:
    for index, metric in enumerate(model.metrics):
        first, *others = (_Peer.of(metric, weights[index]) for weights, _ in states)
        for variable, value in zip(metric.weights, first.weights, strict=True):
            variable.assign(value)
        metric.merge_state(others)
    known = metrics_to_json(model.get_metrics_result(), "get_metrics_result")
    # Values from the user's own step that belong to no metric object are averaged over the slots.
    return {name: known.get(name, value) for name, value in merge_rank_metrics([logs for _, logs in states]).items()}


def with_arrays(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as Keras passes them to callbacks, with arrays instead of lists of equal shape."""
    return {name: _array(value) if isinstance(value, list) else value for name, value in metrics.items()}


def _array(value: Sequence[Any]) -> Any:
    try:
        return np.asarray(value)
    except ValueError:
        return value


class _Peer(SimpleNamespace):
    """Stand-in for a metric of another slot, with the attributes that ``merge_state`` reads."""

    @classmethod
    def of(cls, metric: tf.keras.metrics.Metric, weights: Sequence[Any]) -> _Peer:
        of_variable = {id(variable): value for variable, value in zip(metric.weights, weights, strict=True)}
        names = {name: of_variable[id(one)] for name, one in vars(metric).items() if id(one) in of_variable}
        return cls(**{**names, "weights": weights})


def _value_to_json(name: str, value: Any) -> Any:
    if isinstance(value, (tf.Tensor, tf.Variable)):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, dict):
        return {str(key): _value_to_json(name, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value_to_json(name, one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidTrial(f"the metric {name!r} is {value!r}; expected a number, text, or a tensor of these")
