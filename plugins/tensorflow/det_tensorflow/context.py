"""Trial context shared by all frameworks for TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from det_core.core import Context
from det_core.errors import InvalidTrial
from det_core.trial import TrialContext
from det_tensorflow.backend import TensorFlowBackend
from det_tensorflow.optimizer import GradientExchange

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_core.core import TrainContext

_Optimizer = TypeVar("_Optimizer")


class TensorFlowTrialContext(TrialContext):
    """Base class for the contexts of TensorFlow trials."""

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self._backend = TensorFlowBackend()
        self._train: TrainContext | None = None
        self._exchanges: list[GradientExchange] = []
        """One exchange per wrapped optimizer."""
        self._datasets: list[Any] = []
        """All datasets that `wrap_dataset` returned."""

    @classmethod
    def from_core(cls, core: Context) -> Self:
        context = super().from_core(core)
        context._train = core.train
        return context

    def get_tensorboard_path(self) -> Path:
        """Return the directory whose files are stored for TensorBoard.

        Raises:
            InvalidTrial: the context was made by `from_config`, so there is no training.
        """
        if self._train is None:
            raise InvalidTrial("a context made by from_config() has no TensorBoard directory; train with det run")
        return self._train.get_tensorboard_path()

    def wrap_optimizer(self, optimizer: _Optimizer) -> _Optimizer:
        """Make an optimizer apply the gradients of all slots. Call this right after the optimizer is made.

        If the optimizer is inside another one, such as a ``LossScaleOptimizer``, pass the outer one.

        Args:
            optimizer: a ``tf.keras.optimizers.Optimizer``, one of ``tf.keras.optimizers.legacy``, or a
                ``tf.compat.v1.train.Optimizer``. It is changed in place: it then averages gradients over the slots and
                aggregates them over ``optimizations.aggregation_frequency`` batches.

        Returns:
            The same optimizer.

        Raises:
            InvalidTrial: the argument is not an optimizer, for example the name of one.
        """
        optimizations = self.config.optimizations
        exchange = GradientExchange(
            self._backend,
            f"optimizer{len(self._exchanges)}",
            aggregation=optimizations.aggregation_frequency,
            average_aggregated=optimizations.average_aggregated_gradients,
            fp16_compression=optimizations.gradient_compression,
        )
        exchange.through(optimizer)
        self._exchanges.append(exchange)
        return optimizer

    def _share_aggregated(self) -> Any:
        """Call `Exchange.share` for all optimizers. All slots do this before each checkpoint."""
        shared = [exchange.share() for exchange in self._exchanges]
        return None if tf.executing_eagerly() else tf.group(*shared)

    def _shard(self, dataset: Any, shard: bool) -> Any:
        if not isinstance(dataset, tf.data.Dataset):
            raise InvalidTrial(
                f"wrap_dataset() got a {type(dataset).__name__}; expected a tf.data.Dataset, right after it is created"
            )
        if shard and self.distributed.size > 1:
            dataset = dataset.shard(self.distributed.size, self.distributed.rank)
        self._datasets.append(dataset)
        return dataset


class TensorFlowExperimentalContext:
    """``context.experimental``, with methods that were removed. Their errors name the replacement."""

    def cache_train_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InvalidTrial`, which recommends ``tf.data.Dataset.cache()``."""
        raise InvalidTrial("cache_train_dataset() was removed; use tf.data.Dataset.cache() on the training data")

    def cache_validation_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InvalidTrial`, which recommends ``tf.data.Dataset.cache()``."""
        raise InvalidTrial("cache_validation_dataset() was removed; use tf.data.Dataset.cache() on the validation data")
