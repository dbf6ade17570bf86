"""What a distributed backend does to training with TensorFlow: the contract of its adapters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import tensorflow as tf

from det_core.launch import backends
from det_core.trial import TrialContext

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"


class TensorFlowBackend:
    """How the slots of a trial train as one. As it is, for one slot; adapters override it for theirs.

    An adapter is what ``BackendSpec.adapters["estimator"]`` and ``["keras"]`` name: a subclass. On every slot it is
    constructed as ``adapter(context, options)`` before the trial is. All slots call all methods alike, in graphs and
    eagerly, except for `close`. det by itself shares out the data, puts the metrics of slots together, lets the chief
    alone write checkpoints, and restores them on every slot.
    """

    def average(self, gradients: Sequence[Gradient], *, name: str, fp16_compression: bool) -> list[Gradient]:
        """The mean over the slots of each gradient.

        Args:
            name: of the optimizer, the same on all slots.
            fp16_compression: whether they may travel as float16, by the config's
                ``optimizations.gradient_compression``.
        """
        return list(gradients)

    def broadcast(self, variables: Sequence[Any]) -> Any:
        """Make variables those of the chief.

        Returns:
            The operation that does, if this is called within a graph.
        """
        return None if tf.executing_eagerly() else tf.no_op()

    def training(self) -> AbstractContextManager[Any]:
        """What TensorFlow is called in to train; its errors that another slot's end caused become `PeerLost`."""
        return nullcontext()

    def close(self) -> None:
        """Training has ended, well or not; other slots may be gone."""


def backend_of(framework: str, context: TrialContext) -> TensorFlowBackend:
    """The adapter of the backend that started this process. Raises as `det_core.launch.backends.adapt`."""
    found: TensorFlowBackend = backends.adapt(framework, context, TensorFlowBackend)
    return found
