"""Contract for adapters of distributed backends to TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import tensorflow as tf

from det_core.launch import backends
from det_core.trial import TrialContext

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"
"""Type of a gradient. Those of embeddings are ``IndexedSlices``."""


class TensorFlowBackend:
    """Base class for adapters, which make the slots of a trial train together. It implements training on one slot.

    ``BackendSpec.adapters["estimator"]`` and ``["keras"]`` name a subclass of this class. Each slot constructs it as
    ``adapter(context, options)`` before it constructs the trial. All slots call all methods in the same order, in
    graphs and eagerly, except for `close`. The adapter need not shard data, combine metrics or handle checkpoints,
    because det does that itself. Only the chief writes checkpoints, and every slot restores them.
    """

    def average(self, gradients: Sequence[Gradient], *, name: str, fp16_compression: bool) -> list[Gradient]:
        """Return the mean of each gradient over the slots.

        Args:
            gradients: the gradients of this slot.
            name: the name of the optimizer, the same on all slots.
            fp16_compression: whether gradients may be sent as float16, from the config's
                ``optimizations.gradient_compression``.
        """
        return list(gradients)

    def broadcast(self, variables: Sequence[Any]) -> Any:
        """Set variables to the chief's values.

        Returns:
            Within a graph, the operation that sets them.
        """
        return None if tf.executing_eagerly() else tf.no_op()

    def training(self) -> AbstractContextManager[Any]:
        """Return the context in which det trains. It turns errors that a lost slot caused into `PeerLost`."""
        return nullcontext()

    def close(self) -> None:
        """Release resources after training, whether it succeeded or failed. Other slots may be gone by then."""


def make_tensorflow_backend(framework: str, context: TrialContext) -> TensorFlowBackend:
    """Return the adapter of the backend that started this process.

    Args:
        framework: the name of the framework, a key of ``BackendSpec.adapters``.
        context: context of the trial.

    Raises:
        LaunchError, InvalidExperimentException, PluginError, ConfigError: as for
            `det_core.launch.backends.make_adapter`.
    """
    found: TensorFlowBackend = backends.make_adapter(framework, context, TensorFlowBackend)
    return found
