"""What a `TFKerasTrial` may ask for and must hand over."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import tensorflow as tf
from det_tensorflow.context import TensorFlowExperimentalContext, TensorFlowTrialContext

from det_core.errors import InvalidTrial

_Model = TypeVar("_Model")


@dataclass
class FitSettings:
    """Arguments of ``Model.fit``, under their names there; None: not set."""

    verbose: int | str | None = None
    class_weight: dict[int, float] | None = None
    workers: int | None = None
    use_multiprocessing: bool | None = None
    max_queue_size: int | None = None
    shuffle: bool | None = None
    validation_steps: int | None = None


class TFKerasTrialContext(TensorFlowTrialContext):
    """The context of a `TFKerasTrial`."""

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self.experimental = TensorFlowExperimentalContext()
        self._model: Any = None
        self._fit = FitSettings()

    def wrap_model(self, model: _Model) -> _Model:
        """Hand over the model; returns the same.

        Raises:
            InvalidTrial: it is no ``tf.keras.Model``, or the second one.
        """
        if not isinstance(model, tf.keras.Model):
            raise InvalidTrial(f"wrap_model() got a {type(model).__name__}; expected a tf.keras.Model")
        if self._model not in (None, model):
            raise InvalidTrial("wrap_model() was called for two models; a TFKerasTrial trains one, so wrap only that")
        self._model = model
        return model

    def wrap_dataset(self, dataset: Any, shard: bool = True) -> Any:
        """Hand over each ``tf.data.Dataset`` right after it is made, before it is shuffled, batched or cached.

        Args:
            shard: whether each slot is to get its part of the records. With False you share them out.

        Returns:
            The dataset to go on with. Batch it by ``context.get_per_slot_batch_size()``.

        Raises:
            InvalidTrial: it is no ``tf.data.Dataset``.
        """
        return self._shard(dataset, shard)

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
        """Choose what ``Model.fit`` has arguments for. What is None stays as it was.

        Args:
            verbose: 0 and None are silent; with anything else Keras's progress bar is printed.
            class_weight: class to the weight of its records in training; targets are classes, or one-hot.
            workers: how many read a ``Sequence`` ahead. Up to 1, batches are read when they are needed.
            use_multiprocessing: whether these are processes instead of threads.
            max_queue_size: batches of a ``Sequence`` that may be read ahead, 10 by default.
            shuffle: whether arrays and Sequences are shuffled for each epoch, which they are by default.
            validation_steps: batches per validation on each slot; by default all there are.
        """
        given = locals()
        for setting in fields(FitSettings):
            if given[setting.name] is not None:
                setattr(self._fit, setting.name, given[setting.name])
