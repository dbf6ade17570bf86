"""Optimizers that average gradients over the slots and aggregate them over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_tensorflow.backend import Gradient, TensorFlowBackend

v1 = tf.compat.v1
"""The API of TensorFlow 1, which has optimizers of its own."""
OPTIMIZER_TYPES = (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer, v1.train.Optimizer)
"""Base classes of the optimizers that a trial may use."""


class GradientExchange(tf.Module):  # type: ignore[misc]
    """Averaging and aggregation of one optimizer's gradients. Checkpoints must contain its variables.

    Args:
        backend: averages the gradients over the slots.
        name: the unique name of the optimizer, the same on all slots.
        aggregation: the number of batches whose gradients are added up before each update, >= 1.
        average_aggregated: whether to apply the mean of these gradients instead of their sum.
        fp16_compression: as for `TensorFlowBackend.average`.
    """

    def __init__(
        self,
        backend: TensorFlowBackend,
        name: str,
        *,
        aggregation: int,
        average_aggregated: bool,
        fp16_compression: bool,
    ) -> None:
        super().__init__(name)
        self._sums: list[Any] = []
        """Sums of the gradients since the last update, one per variable."""
        self._summed: Any = self._no_dependency([])
        """References to the variables of `_sums`. Checkpoints save the variables elsewhere."""
        self._count: Any = None
        """The number of batches so far."""
        self._average = partial(backend.average, name=name, fp16_compression=fp16_compression)
        self._aggregation = aggregation
        self._divisor = aggregation if average_aggregated else 1

    def through(self, optimizer: Any) -> Any:
        """Make an optimizer pass its gradients through this exchange.

        Returns:
            The same optimizer, changed in place.

        Raises:
            InvalidTrial: it is none of `OPTIMIZER_TYPES`.
        """
        if not isinstance(optimizer, OPTIMIZER_TYPES):
            raise InvalidTrial(
                f"wrap_optimizer() got {optimizer!r}; expected an object such as tf.keras.optimizers.Adam(), "
                "tf.keras.optimizers.legacy.Adam() or tf.compat.v1.train.AdamOptimizer(), not a name or a class"
            )
        kind = type(optimizer)
        optimizer.__class__ = type(kind.__name__, (_Exchanging, kind), {"__module__": kind.__module__})
        optimizer._det_exchange = self
        return optimizer

    def apply(self, pairs: Sequence[tuple[Gradient | None, Any]], run: Callable[..., Any]) -> Any:
        """Add up gradients, and apply them when ``aggregation`` batches are complete.

        Args:
            pairs: (gradient, variable) pairs.
            run: applies such pairs.

        Returns:
            The result of ``run``, or with aggregation a tensor: whether the gradients were applied.
        """
        trained = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not trained:
            return run(pairs)  # for the optimizer's own error or warning
        gradients, variables = zip(*trained, strict=True)
        if self._aggregation == 1:
            return run(list(zip(self._average(gradients), variables, strict=True)))
        return self._aggregate(gradients, variables, run)

    def share(self) -> Any:
        """Replace the sums on each slot by their mean over the slots, because a checkpoint holds only one slot's sums.

        Returns:
            Within a graph, the operation that replaces them.
        """
        sums = self._sums
        if not sums:
            return None if tf.executing_eagerly() else tf.no_op()
        means = self._average([total.read_value() for total in sums])
        assigned = [total.assign(mean) for total, mean in zip(sums, means, strict=True)]
        return None if tf.executing_eagerly() else tf.group(*assigned)

    def _aggregate(self, gradients: Sequence[Gradient], variables: Sequence[Any], run: Callable[..., Any]) -> Any:
        if self._count is None:
            with tf.init_scope():
                self._sums.extend(_zeros(one.shape, one.dtype.base_dtype) for one in variables)
                self._count = _zeros([], tf.int64)
            self._summed = self._no_dependency([one.ref() for one in variables])
        if [one.ref() for one in variables] != self._summed:
            raise InvalidTrial(
                f"with optimizations.aggregation_frequency {self._aggregation}, an optimizer must apply gradients of "
                f"the same variables in every batch: first {_names(one.deref() for one in self._summed)}, now "
                f"{_names(variables)}; wrap one optimizer per group of variables, and compute a gradient for each "
                "variable in every batch"
            )
        sums, dense = self._sums, map(tf.convert_to_tensor, gradients)
        added = [total.assign_add(one) for total, one in zip(sums, dense, strict=True)]

        def update() -> tf.Tensor:
            means = self._average([total.read_value() / self._divisor for total in sums])
            applied = run(list(zip(means, variables, strict=True)))
            with tf.control_dependencies([] if applied is None else [applied]):
                emptied = [total.assign(tf.zeros_like(total)) for total in sums]
            with tf.control_dependencies(emptied):
                return tf.constant(True)

        with tf.control_dependencies(added):
            counted = self._count.assign_add(1)
        with tf.control_dependencies([counted]):
            return tf.cond(tf.equal(counted % self._aggregation, 0), update, lambda: tf.constant(False))


def uses_exchange(optimizer: Any) -> bool:
    """Return whether an optimizer passes its gradients through an `GradientExchange`.

    If it is a ``LossScaleOptimizer`` around one that does, make the outer optimizer use the exchange instead. The outer
    one applies gradients only if all of them are finite. All slots must make the same decision, because each waits for
    the others in the exchange.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if isinstance(inner, _Exchanging):
        _, inner.__class__ = type(inner).__bases__
        inner._det_exchange.through(optimizer)
    return isinstance(optimizer, _Exchanging)


class _Exchanging:
    """Mixin for the class of an optimizer that passes its gradients through an `GradientExchange`."""

    _det_exchange: GradientExchange

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply gradients through the exchange.

        Raises:
            InvalidTrial: the caller is an optimizer around this one.
        """
        if kwargs.get("skip_gradients_aggregation") or not kwargs.get("experimental_aggregate_gradients", True):
            raise InvalidTrial(
                "an optimizer around the one passed to wrap_optimizer(), such as a LossScaleOptimizer, decides on each "
                "slot separately whether to apply gradients; wrap the outer one: optimizer = "
                "self.context.wrap_optimizer(tf.keras.mixed_precision.LossScaleOptimizer(optimizer))"
            )
        run = partial(super().apply_gradients, *args, **kwargs)  # type: ignore[misc]
        return self._det_exchange.apply(list(grads_and_vars), run)


def _names(variables: Iterable[Any]) -> str:
    return ", ".join(variable.name for variable in variables)


def _zeros(shape: Any, dtype: Any) -> Any:
    return v1.Variable(tf.zeros(shape, dtype), trainable=False, use_resource=True, name="det_aggregation")
