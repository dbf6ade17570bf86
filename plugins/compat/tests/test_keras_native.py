"""Keras scripts without a trial class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from det_core.interfaces.records import State
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """
import sys

import determined as det
import numpy as np
import tensorflow as tf
from determined import experimental
from determined.experimental.keras import init

config = {
    "searcher": {"name": "single", "metric": "val_loss", "max_steps": 2},
    "batches_per_step": 4,
    "hyperparameters": {"units": det.Integer(5, 5), "global_batch_size": 8},
}
context = init(config, mode=experimental.Mode(sys.argv[1]), context_dir=".")
x = np.random.RandomState(0).rand(64, 3).astype("float32")
y = (x.sum(1) > 1.5).astype("int32")
layers = [tf.keras.layers.Dense(context.get_hparam("units"), input_shape=(3,)), tf.keras.layers.Dense(2)]
model = context.wrap_model(tf.keras.Sequential(layers))
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
if sys.argv[2] == "dataset":
    data = context.wrap_dataset(tf.data.Dataset.from_tensor_slices((x, y))).batch(context.get_per_slot_batch_size())
    model.fit(data, validation_data=data)
else:
    model.fit(x, y, validation_data=(x, y), epochs=5)
print("after fit")
"""


def run(*arguments: str, directory: Path) -> str:
    ran = subprocess.run(arguments, cwd=directory, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("tensorflow")
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    return directory


@pytest.mark.parametrize("data", ["arrays", pytest.param("dataset", marks=pytest.mark.soak)])
def test_one_batch_is_trained_in_the_process_of_the_script(code: Path, data: str) -> None:
    output = run(sys.executable, "train.py", "local", data, directory=code)
    assert "The test passed: training metrics" in output
    assert output.endswith("after fit\n")


def test_an_experiment_in_the_background_trains_and_ends_the_script(code: Path) -> None:
    output = run(sys.executable, "train.py", "cluster", "arrays", directory=code)
    assert "after fit" not in output
    run(str(Path(sys.executable).with_name("det")), "experiment", "wait", "1", "--timeout", "150", directory=code)
    with open_store() as store:
        (experiment,) = store.experiments()
        assert experiment.state is State.COMPLETED
        (trial,) = store.trials(experiment.id)
        assert trial.hparams["units"] == 5
        assert max(report.steps_completed for report in store.metrics(trial.id)) == 8
