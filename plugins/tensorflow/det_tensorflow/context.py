"""Trial context shared by all frameworks for TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from det_core.core import Context
from det_core.errors import InvalidTrial
from det_core.trial import TrialContext, tensorboard_upload
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
        self.backend = TensorFlowBackend()
        """Adapter of the distributed backend."""
        self._train: TrainContext | None = None
        self.exchanges: list[GradientExchange] = []
        """One exchange per wrapped optimizer."""
        self.datasets: list[Any] = []
        """All datasets that `shard_dataset` returned."""

    @classmethod
    def from_core(cls, core: Context, *, hparams: Mapping[str, Any] | None = None) -> Self:
        context = super().from_core(core, hparams=hparams)
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

    def store_tensorboard_files(self) -> None:
        """Store the changed files of `get_tensorboard_path`. Without a training, there are none."""
        if self._train:
            tensorboard_upload.upload_tensorboard_files(self._train)

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
            self.backend,
            f"optimizer{len(self.exchanges)}",
            aggregation=optimizations.aggregation_frequency,
            average_aggregated=optimizations.average_aggregated_gradients,
            fp16_compression=optimizations.gradient_compression,
        )
        exchange.through(optimizer)
        self.exchanges.append(exchange)
        return optimizer

    def share_aggregated(self) -> Any:
        """Call `Exchange.share` for all optimizers. All slots do this before each checkpoint."""
        shared = [exchange.share() for exchange in self.exchanges]
        return None if tf.executing_eagerly() else tf.group(*shared)

    def shard_dataset(self, dataset: Any, shard: bool) -> Any:
        """Return the part of a dataset that this slot reads, for ``wrap_dataset`` of frameworks.

        Args:
            dataset: a ``tf.data.Dataset``.
            shard: False if the dataset already contains only this slot's share.

        Raises:
            InvalidTrial: the argument is not a dataset.
        """
        if not isinstance(dataset, tf.data.Dataset):
            raise InvalidTrial(
                f"wrap_dataset() got a {type(dataset).__name__}; expected a tf.data.Dataset, right after it is created"
            )
        if shard and self.distributed.size > 1:
            dataset = dataset.shard(self.distributed.size, self.distributed.rank)
        self.datasets.append(dataset)
        return dataset


class TensorFlowExperimentalContext:
    """``context.experimental``, with methods that were removed. Their errors name the replacement."""

    def cache_train_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InvalidTrial`, which recommends ``tf.data.Dataset.cache()``."""
        raise InvalidTrial("cache_train_dataset() was removed; use tf.data.Dataset.cache() on the training data")

    def cache_validation_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `InvalidTrial`, which recommends ``tf.data.Dataset.cache()``."""
        raise InvalidTrial("cache_validation_dataset() was removed; use tf.data.Dataset.cache() on the validation data")
