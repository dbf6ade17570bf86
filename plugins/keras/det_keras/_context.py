"""Context of a TFKerasTrial."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import tensorflow as tf
from det_tensorflow.context import TensorFlowExperimentalContext, TensorFlowTrialContext

from det_core.errors import InvalidTrial

_Model = TypeVar("_Model")
_Optimizer = TypeVar("_Optimizer")


@dataclass
class FitSettings:
    """Settings named like the arguments of ``Model.fit``. None means unset."""

    verbose: int | str | None = None
    class_weight: dict[int, float] | None = None
    workers: int | None = None
    use_multiprocessing: bool | None = None
    max_queue_size: int | None = None
    shuffle: bool | None = None
    validation_steps: int | None = None


class TFKerasTrialContext(TensorFlowTrialContext):
    """Context that a `TFKerasTrial` gets in ``__init__``.

    Raises:
        InvalidTrial: the behaviour of TensorFlow 2 was disabled in this process.
    """

    def __init__(self, **place: Any) -> None:
        if not tf.executing_eagerly():
            raise InvalidTrial(
                "a TFKerasTrial needs eager execution, which was disabled in this process; remove "
                "tf.compat.v1.disable_v2_behavior() or disable_eager_execution() from its modules, and the import of "
                "EstimatorTrial, which does the same. With run_eagerly=False, the default of compile(), the steps are "
                "compiled into graphs anyway"
            )
        super().__init__(**place)
        self.experimental = TensorFlowExperimentalContext(self)
        """Methods of the data layer of earlier releases."""
        self._model: Any = None
        self._optimizers: list[Any] = []
        """All wrapped optimizers, in order."""
        self._fit = FitSettings()

    def wrap_model(self, model: _Model) -> _Model:
        """Register the model that det trains.

        Returns:
            The same model.

        Raises:
            InvalidTrial: the argument is not a ``tf.keras.Model``, or another model was registered before.
        """
        if not isinstance(model, tf.keras.Model):
            raise InvalidTrial(f"wrap_model() got a {type(model).__name__}; expected a tf.keras.Model")
        if self._model not in (None, model):
            raise InvalidTrial("wrap_model() was called for two models; a TFKerasTrial trains one, so wrap only this")
        self._model = model
        return model

    def wrap_optimizer(self, optimizer: _Optimizer) -> _Optimizer:
        wrapped = super().wrap_optimizer(optimizer)
        self._optimizers.append(wrapped)
        return wrapped

    def wrap_dataset(self, dataset: Any, shard_dataset: bool = True) -> Any:
        """Shard a dataset over the slots. Call this right after it is made, before it is shuffled, batched or cached.

        Args:
            dataset: a ``tf.data.Dataset``.
            shard_dataset: False if the dataset already contains only this slot's share.

        Returns:
            The dataset to use instead. Batch it by ``context.get_per_slot_batch_size()``.

        Raises:
            InvalidTrial: the argument is not a ``tf.data.Dataset``.
        """
        return self.shard_dataset(dataset, shard_dataset)

    def configure_fit(
        self,
        verbose: int | str | None = None,
        class_weight: dict[int, float] | None = None,
        workers: int | None = None,
        use_multiprocessing: bool | None = None,
        max_queue_size: int | None = None,
        shuffle: bool | None = None,
        validation_steps: int | None = None,
    ) -> None:
        """Set what ``Model.fit`` has arguments for. Arguments that are None keep their previous values.

        Args:
            verbose: whether to print Keras's progress bar. 0 and None are silent.
            class_weight: weights of records in training, by class. Targets are class numbers or one-hot.
            workers: the number of workers that read ahead in a ``Sequence``. With 0 or 1, batches are read on demand.
            use_multiprocessing: whether workers are processes instead of threads.
            max_queue_size: the number of batches of a ``Sequence`` that may be read ahead, 10 by default.
            shuffle: whether arrays and Sequences are shuffled for each epoch, True by default.
            validation_steps: the number of batches per validation on each slot, all by default.
        """
        given = locals()
        for setting in fields(FitSettings):
            if given[setting.name] is not None:
                setattr(self._fit, setting.name, given[setting.name])
