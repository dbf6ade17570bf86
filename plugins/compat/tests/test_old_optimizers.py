"""Optimizers of old Keras trials."""

from __future__ import annotations

import pytest


def test_an_old_trial_trains_with_the_rate_that_it_names() -> None:
    tf = pytest.importorskip("tensorflow")
    from determined import keras
    from tensorflow.python.eager import context as eager

    assert keras.TFKerasTrial
    with eager.eager_mode():  # which other tests switch off by importing EstimatorTrial
        made = tf.keras.optimizers.SGD(lr=0.5, decay=0.25)
        assert isinstance(made, tf.keras.optimizers.legacy.SGD)
        assert (float(made.learning_rate), float(made.decay)) == (0.5, 0.25)
