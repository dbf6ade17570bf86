"""Iris species, a Keras model with callbacks."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from determined.keras import InputData, TFKerasTrial, TFKerasTrialContext
from determined.keras.callbacks import Callback, EarlyStopping, ReduceLROnPlateau, TensorBoard
from sklearn.datasets import load_iris
from tensorflow.keras.layers import Dense, Input
from tensorflow.keras.losses import categorical_crossentropy
from tensorflow.keras.metrics import categorical_accuracy
from tensorflow.keras.models import Model
from tensorflow.keras.optimizers.legacy import RMSprop


class CountWorkloads(Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_workload_begin(self, total_batches_trained, batches_requested, logs):
        self.batches.append(total_batches_trained)

    def on_checkpoint_end(self, checkpoint_dir):
        Path(checkpoint_dir, "workloads.txt").write_text(" ".join(map(str, self.batches)))

    def get_state(self):
        return self.batches

    def load_state(self, state):
        self.batches = state


class IrisTrial(TFKerasTrial):
    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context
        measurements, species = load_iris(return_X_y=True)
        order = np.random.RandomState(1).permutation(150)
        self.features = measurements[order].astype(np.float32)
        self.labels = tf.keras.utils.to_categorical(species[order], num_classes=3)

    def build_model(self) -> Model:
        inputs = Input(shape=(4,))
        dense1 = Dense(self.context.get_hparam("layer1_dense_size"), activation="relu")(inputs)
        outputs = Dense(3, activation="softmax")(dense1)

        # Wrap the model.
        model = self.context.wrap_model(Model(inputs=inputs, outputs=outputs))

        # Create and wrap the optimizer.
        optimizer = RMSprop(
            learning_rate=self.context.get_hparam("learning_rate"), decay=self.context.get_hparam("learning_rate_decay")
        )
        optimizer = self.context.wrap_optimizer(optimizer)

        model.compile(optimizer, categorical_crossentropy, [categorical_accuracy])
        return model

    def keras_callbacks(self):
        return [
            CountWorkloads(),
            EarlyStopping(monitor="val_loss", patience=20),
            ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=3, min_lr=1e-4),
            TensorBoard(update_freq="batch", profile_batch=0),
        ]

    def build_training_data_loader(self) -> InputData:
        dataset = tf.data.Dataset.from_tensor_slices((self.features[:120], self.labels[:120]))
        dataset = self.context.wrap_dataset(dataset)
        return dataset.shuffle(120).batch(self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> InputData:
        return self.features[120:], self.labels[120:]
