"""Base class of trials."""

from __future__ import annotations

from abc import abstractmethod

import tensorflow as tf
from det_tensorflow.old_arguments import refuse_ignored_rate

from det_core.trial import Trial
from det_keras._context import TFKerasTrialContext
from det_keras._data import InputData

refuse_ignored_rate()


class TFKerasTrial(Trial):
    """Base class for trials that train a Keras model::

        class MyTrial(TFKerasTrial):
            def build_model(self):
                model = self.context.wrap_model(tf.keras.Sequential([tf.keras.layers.Dense(10)]))
                optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam())
                model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
                return model

            def build_training_data_loader(self):
                return images, labels          # or any other `InputData`

            def build_validation_data_loader(self):
                return other_images, other_labels

    Training metrics are the result of ``train_step`` for each single batch. Validation metrics are the result of
    ``Model.evaluate`` over the whole set, named ``val_loss``, ``val_accuracy`` and so on.
    """

    trial_context_class = TFKerasTrialContext

    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context
        """The context that the trial was made with."""

    @abstractmethod
    def build_model(self) -> tf.keras.Model:
        """Return the model, passed through ``context.wrap_model`` and compiled with a wrapped optimizer."""

    @abstractmethod
    def build_training_data_loader(self) -> InputData:
        """Return the training data. det calls this once, after `build_model`."""

    @abstractmethod
    def build_validation_data_loader(self) -> InputData:
        """Return the validation data. det calls this once, and every validation uses all of the data."""

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """Return callbacks. `det_keras.callbacks.Callback` documents when they are called."""
        return []

    def session_config(self) -> tf.compat.v1.ConfigProto:
        """Return settings of TensorFlow. det applies threads, soft placement and growth of GPU memory."""
        return tf.compat.v1.ConfigProto()
