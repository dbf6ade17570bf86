"""Trial context shared by all frameworks for TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from det_core.core import Context
from det_core.errors import InvalidTrial
from det_core.trial import TrialContext, tensorboard_upload
from det_core.trial.random_generators import derive_seed
from det_tensorflow.backend import TensorFlowBackend
from det_tensorflow.optimizer import GradientExchange

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_core.core import TrainContext

_Optimizer = TypeVar("_Optimizer")
_Make = TypeVar("_Make", bound=Callable[..., Any])


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
        optimizations = self.get_experiment_config()["optimizations"]
        exchange = GradientExchange(
            self.backend,
            f"optimizer{len(self.exchanges)}",
            aggregation=optimizations["aggregation_frequency"],
            average_aggregated=optimizations["average_aggregated_gradients"],
            fp16_compression=optimizations["gradient_compression"],
        )
        exchange.through(optimizer)
        self.exchanges.append(exchange)
        return optimizer

    def share_aggregated(self) -> Any:
        """Call `GradientExchange.share` for all optimizers. All slots do this before each checkpoint."""
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
    """``context.experimental``, with decorators of the data layer of earlier releases.

    Args:
        context: the context of the trial.
    """

    def __init__(self, context: TensorFlowTrialContext) -> None:
        self._context = context

    def cache_train_dataset(
        self, dataset_id: str, dataset_version: str, shuffle: bool = False, skip_shuffle_at_epoch_end: bool = False
    ) -> Callable[[_Make], _Make]:
        """Return a decorator for a function that makes the training dataset, before it is batched.

        The dataset is sharded over the slots and shuffled, but not cached. Call ``Dataset.cache()`` in the function if
        its records are slow to make and fit into memory.

        Args:
            dataset_id: ignored.
            dataset_version: ignored.
            shuffle: whether to shuffle all records, with the trial's seed. They must fit into memory.
            skip_shuffle_at_epoch_end: whether all epochs have the same order.
        """
        return self._managed(shuffle, not skip_shuffle_at_epoch_end)

    def cache_validation_dataset(
        self, dataset_id: str, dataset_version: str, shuffle: bool = False
    ) -> Callable[[_Make], _Make]:
        """Return a decorator for a function that makes the validation dataset, as in `cache_train_dataset`.

        Args:
            dataset_id: ignored.
            dataset_version: ignored.
            shuffle: whether to shuffle all records, with the trial's seed. They must fit into memory.
        """
        return self._managed(shuffle, False)

    def _managed(self, shuffle: bool, every_epoch: bool) -> Callable[[_Make], _Make]:
        seed = derive_seed(self._context.get_trial_seed(), "data layer")

        def decorate(make: _Make) -> _Make:
            @wraps(make)
            def made(*args: Any, **kwargs: Any) -> tf.data.Dataset:
                dataset = self._context.shard_dataset(make(*args, **kwargs), True)
                if not shuffle:
                    return dataset
                return dataset.shuffle(tf.data.UNKNOWN_CARDINALITY, seed, reshuffle_each_iteration=every_epoch)

            return made  # type: ignore[return-value]

        return decorate
