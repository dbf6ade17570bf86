"""The class that users derive from."""

from __future__ import annotations

from abc import abstractmethod

import tensorflow as tf

from det_core.trial import Trial
from det_keras._context import TFKerasTrialContext
from det_keras._data import InputData


class TFKerasTrial(Trial):
    """A Keras model, its data and how to train it::

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

    Training metrics are those that ``train_step`` returns, of each batch by itself. Validation metrics are those of
    ``Model.evaluate``, over the whole set, as ``val_loss``, ``val_accuracy`` and so on.
    """

    trial_context_class = TFKerasTrialContext

    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context

    @abstractmethod
    def build_model(self) -> tf.keras.Model:
        """The model, handed over to ``context.wrap_model`` and compiled with an optimizer from ``wrap_optimizer``."""

    @abstractmethod
    def build_training_data_loader(self) -> InputData:
        """What to train on. Called once, after `build_model`."""

    @abstractmethod
    def build_validation_data_loader(self) -> InputData:
        """What to validate with, each time all of it. Called once."""

    def keras_callbacks(self) -> list[tf.keras.callbacks.Callback]:
        """Callbacks, called as `det_keras.callbacks.Callback` says."""
        return []

    def session_config(self) -> tf.compat.v1.ConfigProto:
        """Settings of TensorFlow; `det_keras._session` says which ones are taken from here."""
        return tf.compat.v1.ConfigProto()
