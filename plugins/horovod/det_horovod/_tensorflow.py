"""Adapter of Horovod to trials in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from det_tensorflow.backend import Gradient, TensorFlowBackend
from det_tensorflow.context import TensorFlowTrialContext
from pydantic import BaseModel

from det_core.errors import InvalidTrial
from det_horovod import _lifecycle

_EXCHANGED = (tf.float16, tf.float32, tf.float64)
"""Types of gradients that Horovod averages."""
_MARK = "Horovod"
"""Prefix of the names of operations, which makes their errors recognizable."""


class HorovodTensorFlow(TensorFlowBackend):
    """Adapter that averages dense gradients in groups and gathers sparse ones.

    Slots match tensors by the names of operations, which are chosen here. TensorFlow's own names would differ if the
    graph of one slot has additional operations, such as those that write summaries.
    """

    def __init__(self, context: TensorFlowTrialContext, options: BaseModel) -> None:
        optimizations = context.get_experiment_config()["optimizations"]
        self._owns = _lifecycle.start_horovod(hvd, optimizations, context.distributed)
        self._fused = optimizations["tensor_fusion_threshold"] << 20

    def average(self, gradients: Sequence[Gradient], *, name: str, fp16_compression: bool) -> list[Gradient]:
        compression = hvd.Compression.fp16 if fp16_compression else hvd.Compression.none
        if not fp16_compression:
            _check_types(gradients)
        means = list(gradients)
        with self.training():
            for number, group in enumerate(_groups(gradients, self._fused)):
                dense = [_opaque(gradients[place]) for place in group]
                options = {"compression": compression, "name": f"{_MARK}_{name}_{number}", "ignore_name_scope": True}
                for place, mean in zip(group, hvd.grouped_allreduce(dense, op=hvd.Average, **options), strict=True):
                    means[place] = mean
            for place, gradient in enumerate(gradients):
                if isinstance(gradient, tf.IndexedSlices):
                    means[place] = _gather(gradient, f"{_MARK}_{name}_{place}", compression)
        return means

    def broadcast(self, variables: Sequence[Any]) -> Any:
        def share() -> tf.Tensor:
            taken = [_take_over(one, f"{_MARK}_variable{place}") for place, one in enumerate(variables)]
            with tf.control_dependencies(taken):
                return tf.constant(True)

        if not tf.executing_eagerly():
            return share().op
        with self.training():
            tf.function(share, autograph=False)()
        return None

    def training(self) -> AbstractContextManager[Any]:
        return _lifecycle.translate_horovod_errors(tf.errors.UnknownError, _MARK)

    def close(self) -> None:
        if self._owns:
            _lifecycle.stop_horovod(hvd)


def _groups(gradients: Sequence[Gradient], limit: int) -> list[list[int]]:
    """Return the indices of dense gradients, in groups of adjacent ones with the same type and up to ``limit`` bytes.

    With several groups, one is exchanged while the next is computed. Without groups, timing would decide which
    gradients Horovod fuses, and thus the order of sums.
    """
    groups: list[list[int]] = []
    kind, room = None, 0
    for place, gradient in enumerate(gradients):
        if isinstance(gradient, tf.IndexedSlices):
            continue
        size = gradient.dtype.size * (gradient.shape.num_elements() or 0)
        if gradient.dtype != kind or size > room:
            groups.append([])
            kind, room = gradient.dtype, limit
        groups[-1].append(place)
        room -= size
    return groups


def _gather(slices: tf.IndexedSlices, name: str, compression: Any) -> tf.IndexedSlices:
    values, kind = compression.compress(_opaque(slices.values))
    values = hvd.allgather(values, name=f"{name}_values", ignore_name_scope=True)
    indices = hvd.allgather(_opaque(slices.indices), name=f"{name}_indices", ignore_name_scope=True)
    return tf.IndexedSlices(compression.decompress(values, kind) / hvd.size(), indices, slices.dense_shape)


def _opaque(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor in a form that graph optimization cannot fold.

    An exchange of a constant would otherwise run before the graph does, and only on some slots.
    """
    return tensor if tf.executing_eagerly() else tf.compat.v1.placeholder_with_default(tensor, tensor.shape)


def _take_over(variable: Any, name: str) -> Any:
    """Return the operation that assigns the chief's value, sent as bytes because Horovod does not support all types."""
    own = tf.convert_to_tensor(variable)
    sent = own if own.dtype == tf.bool else tf.bitcast(own, tf.uint8)
    received = hvd.broadcast(sent, 0, name=name, ignore_name_scope=True)
    return variable.assign(received if own.dtype == tf.bool else tf.bitcast(received, own.dtype))


def _check_types(gradients: Sequence[Gradient]) -> None:
    for gradient in gradients:
        if gradient.dtype not in _EXCHANGED:
            raise InvalidTrial(
                f"a gradient of shape {tuple(gradient.shape)} is {gradient.dtype.name}, which Horovod cannot average; "
                "keep variables in float32, or set optimizations: {gradient_compression: true}"
            )
