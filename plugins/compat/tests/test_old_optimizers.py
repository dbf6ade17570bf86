"""Optimizers of old Keras trials."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration]

TRIAL = """
import tensorflow as tf
from determined import keras

class Trial(keras.TFKerasTrial):
    pass

made = tf.keras.optimizers.SGD(lr=0.5, decay=0.25)
assert isinstance(made, tf.keras.optimizers.legacy.SGD)
assert (float(made.learning_rate), float(made.decay)) == (0.5, 0.25)
"""


def test_an_old_trial_trains_with_the_rate_that_it_names() -> None:
    pytest.importorskip("tensorflow")
    subprocess.run([sys.executable, "-c", TRIAL], check=True)
