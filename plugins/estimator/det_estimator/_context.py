"""What an EstimatorTrial may ask for and must hand over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from det_tensorflow.context import TensorFlowExperimentalContext, TensorFlowTrialContext

from det_estimator._reducer import Accumulator, MetricReducer, accumulating


class EstimatorExperimentalContext(TensorFlowExperimentalContext):
    """``context.experimental`` of an EstimatorTrial."""


class EstimatorTrialContext(TensorFlowTrialContext):
    """Handed to an EstimatorTrial's ``__init__``."""

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self.experimental = EstimatorExperimentalContext()
        self._accumulators: list[Accumulator] = []
        """Of the metrics that `make_metric` made for the current validation."""

    def wrap_dataset(self, dataset: Any, shard_dataset: bool = True) -> Any:
        """Hand over a dataset as soon as it is made, before it is batched: each slot gets a share of its records.

        Args:
            dataset: a ``tf.data.Dataset``.
            shard_dataset: False if what you made is this slot's share already.

        Returns:
            The dataset to use from now on.

        Raises:
            InvalidTrial: it is no dataset.
        """
        return self._shard(dataset, shard_dataset)

    def make_metric(
        self, metric: Any, reducer: Callable[[list[Any]], Any] | MetricReducer, numpy_dtype: Any
    ) -> tuple[Any, Any]:
        """A validation metric that is exact over any number of batches and slots, for ``eval_metric_ops``.

        Args:
            metric: a tensor, a list of tensors, or a dict of tensors: what the reducer needs of each batch.
            reducer: a function of the list of values of all batches of all slots, in the order of the data as far as
                slots can tell, or a `MetricReducer`. Values are arrays, in lists or dicts as ``metric`` has them.
            numpy_dtype: of the result; anything that ``np.dtype`` takes.

        Returns:
            (value, update): the operations that an Estimator expects of a metric.

        Raises:
            TypeError: the metric is something else, such as nested lists, or the reducer cannot be called.
        """
        accumulator = accumulating(reducer)
        self._accumulators.append(accumulator)
        return accumulator.operations(metric, numpy_dtype)

    def _settle_metrics(self, batches: int) -> Sequence[int]:
        """All slots together put the states of their metrics together; returns the numbers of batches of each."""
        slots = self.distributed.allgather((batches, [one.state for one in self._accumulators]))
        for accumulator, states in zip(
            self._accumulators, zip(*(states for _, states in slots), strict=True), strict=True
        ):
            accumulator.settle(states)
        return [batches for batches, _ in slots]
