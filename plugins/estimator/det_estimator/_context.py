"""Context of an EstimatorTrial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from det_tensorflow.context import TensorFlowExperimentalContext, TensorFlowTrialContext

from det_estimator._metric_reducer import Accumulator, MetricReducer, make_accumulator

_Optimizer = TypeVar("_Optimizer")


class EstimatorExperimentalContext(TensorFlowExperimentalContext):
    """``context.experimental`` of an `EstimatorTrial`."""

    def __init__(self, context: EstimatorTrialContext) -> None:
        super().__init__(context)
        self.make_metric = context.make_metric
        """Old place of `EstimatorTrialContext.make_metric`."""


class EstimatorTrialContext(TensorFlowTrialContext):
    """Context that an `EstimatorTrial` gets in ``__init__``."""

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self.experimental = EstimatorExperimentalContext(self)
        """Methods of the data layer of earlier releases."""
        self._accumulators: list[Accumulator] = []
        """Accumulators of the metrics that `make_metric` made for the current validation."""

    def wrap_optimizer(self, optimizer: _Optimizer) -> _Optimizer:
        """Make an optimizer apply the gradients of all slots. Call this right after the optimizer is made.

        Args:
            optimizer: as for `TensorFlowTrialContext.wrap_optimizer`, or None for an Estimator without one, which must
                train on one slot.

        Returns:
            The same optimizer.

        Raises:
            InvalidTrial: the argument is not an optimizer, for example the name of one.
        """
        return optimizer if optimizer is None else super().wrap_optimizer(optimizer)

    def wrap_dataset(self, dataset: Any, shard_dataset: bool = True) -> Any:
        """Shard a dataset over the slots. Call this right after the dataset is made and before it is batched.

        Args:
            dataset: a ``tf.data.Dataset``.
            shard_dataset: False if the dataset already contains only this slot's share.

        Returns:
            The dataset to use instead.

        Raises:
            InvalidTrial: the argument is not a dataset.
        """
        return self.shard_dataset(dataset, shard_dataset)

    def make_metric(
        self, metric: Any, reducer: Callable[[list[Any]], Any] | MetricReducer, numpy_dtype: Any
    ) -> tuple[Any, Any]:
        """Make a validation metric for ``eval_metric_ops`` that is exact over any number of batches and slots.

        Args:
            metric: what the reducer needs of each batch, as a tensor, a list of tensors or a dict of tensors.
            reducer: a `MetricReducer`, or a function of the list of the values of all batches, in which the slots take
                turns. Values are arrays, in lists or dicts as in ``metric``.
            numpy_dtype: the type of the result, anything that ``np.dtype`` accepts.

        Returns:
            (value, update): the operations that an Estimator expects of a metric.

        Raises:
            TypeError: the metric is something else, such as nested lists, or the reducer is not callable.
        """
        accumulator = make_accumulator(reducer)
        self._accumulators.append(accumulator)
        return accumulator.operations(metric, numpy_dtype)

    def _settle_metrics(self, batches: int) -> Sequence[int]:
        """Exchange the states of the metrics between the slots, and compute the metrics.

        Args:
            batches: the number of batches that this slot evaluated.

        Returns:
            The number of batches of each slot.
        """
        slots = self.distributed.allgather((batches, [one.state for one in self._accumulators]))
        for accumulator, states in zip(
            self._accumulators, zip(*(states for _, states in slots), strict=True), strict=True
        ):
            accumulator.settle(states)
        return [batches for batches, _ in slots]
