"""Validation metrics computed in Python over all batches of all slots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_estimator import EstimatorTrialContext, MetricReducer
from det_estimator._evaluation import _mean_over_slots
from det_estimator._metric_reducer import make_accumulator

v1 = tf.compat.v1


class Mean(MetricReducer):
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def accumulate(self, metric: Any) -> Any:
        self.sum, self.count = self.sum + float(np.sum(metric)), self.count + np.size(metric)
        return self.sum, self.count

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> float:
        sums, counts = zip(*per_slot_metrics, strict=True)
        return sum(sums) / sum(counts)


FORMS = {
    "tensor": (lambda x: x, lambda x: x),
    "list": (lambda x: [x, 2 * x], lambda found: found[1] - found[0]),
    "dict": (lambda x: {"a": x, "b": 3 * x}, lambda found: found["b"] - 2 * found["a"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_gets_the_values_of_all_batches(context: EstimatorTrialContext, graph: Any, form: str) -> None:
    make, read = FORMS[form]
    fed = v1.placeholder(tf.float32, [None])
    reduce = lambda batches: np.concatenate([read(batch) for batch in batches]).max()  # noqa: E731
    value, update = context.make_metric(make(fed), reduce, np.float64)
    with v1.Session() as session:
        for batch in ([1, 5], [3], [2, 2]):
            session.run(update, {fed: batch})
        found = session.run(value)
    assert (found, found.dtype) == (5.0, np.float64)


def test_every_metric_uses_its_own_copy_of_the_reducer(context: EstimatorTrialContext, graph: Any) -> None:
    reducer = Mean()
    metrics = [context.make_metric(tf.constant([float(number)]), reducer, "float32") for number in (2, 8)]
    with v1.Session() as session:
        session.run([update for _, update in metrics])
        assert session.run([value for value, _ in metrics]) == [2.0, 8.0]
    assert reducer.count == 0


@pytest.mark.parametrize("metric", [3.0, [[tf.constant(1)]], {"a": {"b": 1}}, (1, 2), None])
def test_metrics_of_other_types_are_rejected(context: EstimatorTrialContext, metric: Any) -> None:
    with pytest.raises(TypeError, match="expected a tensor, a list of tensors, or a dict of tensors"):
        context.make_metric(metric, max, np.float32)


def test_a_reducer_that_is_not_callable_is_rejected(context: EstimatorTrialContext, graph: Any) -> None:
    with pytest.raises(TypeError, match="expected a function or a MetricReducer"):
        context.make_metric(tf.constant(1.0), 3, np.float32)  # type: ignore[arg-type]


def test_slots_take_turns_and_one_may_have_no_batch(context: EstimatorTrialContext) -> None:
    """Records are distributed to the slots in turn, so this is the order of the data."""
    slots: list[Any] = [[make_accumulator(list), make_accumulator(Mean())] for _ in range(3)]
    for slot, numbers in ((0, [0, 2, 4]), (2, [1, 3])):
        for number in numbers:
            for accumulator in slots[slot]:
                accumulator.state = accumulator._reducer.accumulate(number)
    reported = [
        (3, [one.state for one in slots[0]]),
        (0, [one.state for one in slots[1]]),
        (2, [one.state for one in slots[2]]),
    ]
    context.distributed = SimpleNamespace(allgather=lambda own: reported)  # type: ignore[assignment]
    context._accumulators = slots[1]
    assert context._settle_metrics(0) == [3, 0, 2]
    assert [one._settled for one in slots[1]] == [[0, 1, 2, 3, 4], 2.0]


def test_tensorflow_metrics_are_weighted_by_batches() -> None:
    nan, same = float("nan"), 0.1
    of_slots = [{"loss": 1.0, "auc": same}, {"loss": 4.0, "auc": same}, {"loss": nan, "auc": same}]
    assert _mean_over_slots(of_slots, [2, 1, 0]) == {"loss": 2.0, "auc": same}
