"""Premade Estimator of the progression of diabetes, as a linear function of ten measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from det_estimator import EstimatorTrial
from sklearn.datasets import load_diabetes

NAMES = load_diabetes().feature_names


class DiabetesTrial(EstimatorTrial):
    def build_estimator(self) -> Any:
        columns = [tf.feature_column.numeric_column(name) for name in NAMES]
        optimizer = tf.keras.optimizers.legacy.Adam(self.context.get_hparam("lr"))
        return tf.estimator.LinearRegressor(columns, optimizer=self.context.wrap_optimizer(optimizer))

    def build_train_spec(self) -> Any:
        return tf.estimator.TrainSpec(self.training)

    def build_validation_spec(self) -> Any:
        return tf.estimator.EvalSpec(self.validation, steps=None)

    def training(self) -> Any:
        patients, _ = diabetes()
        dataset = self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(patients))
        return dataset.shuffle(332).batch(self.context.get_per_slot_batch_size())

    def validation(self) -> Any:
        _, patients = diabetes()
        return self.context.wrap_dataset(tf.data.Dataset.from_tensor_slices(patients)).batch(110)


def diabetes() -> tuple[Any, Any]:
    """Return 332 patients for training and 110 for validation, as scaled measurements and standardized progression."""
    measurements, progression = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(progression))
    inputs = (measurements[order] / measurements.std(0)).astype(np.float32)
    targets = ((progression[order] - progression.mean()) / progression.std()).astype(np.float32)
    patients = [
        ({name: inputs[part, column] for column, name in enumerate(NAMES)}, targets[part])
        for part in (slice(110, None), slice(0, 110))
    ]
    return patients[0], patients[1]
