"""Make a checkpoint with an old release of the original system: ``python make.py RELEASE DIRECTORY``.

Run it once per release, with a Python that has a TensorFlow of that time and the dependencies of the release. The
release itself is installed into a temporary directory, without dependencies. The checkpoints next to this file were
made this way, all with Python 3.7.16:

    release           TensorFlow   numpy    h5py
    0.12.3, 0.13.7    2.4.4        1.19.5   2.10.0
    0.13.8, 0.17.6    2.4.4        1.19.5   2.10.0
    0.17.7            2.4.4        1.19.5   2.10.0
    0.17.15           1.15.5       1.18.5   2.10.0
    0.18.4            2.4.4        1.19.5   2.10.0
    0.19.10, 0.20.1   2.8.4        1.21.6   3.8.0

The release trains five batches, validates twice and saves with its own code, in its local test mode. Two things differ
from a cluster:

- Other workloads replace those of the test mode.
- A release writes ``workload_sequencer.pkl`` only when it has a master. This script fills in the state of its
  sequencer, from release 0.17 on. The class, its pickling and the file are those of the release.
- Release 0.17.6 writes ``metadata.json`` when it downloads a checkpoint, which this script lets it do.

The script keeps the files that det reads, and ``expected.json``, the state of the trial in memory when it was saved.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BATCHES = 5
KEPT = (
    "determined-callbacks.v1.pkl",
    "determined-keras-model",
    "determined-keras-model.h5",
    "determined-keras-model-weights.data-*",
    "determined-keras-model-weights.index",
    "determined-keras-optimizer-weights.h5",
    "expected.json",
    "load_data.json",
    "metadata.json",
    "rng_state.pkl",
    "workload_sequencer.pkl",
)
CONFIG = {
    "description": "old checkpoint",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": BATCHES}},
    "resources": {"slots_per_trial": 1},
    "records_per_epoch": 40,
}
OLD_SEARCHER = {"name": "single", "metric": "val_loss", "max_steps": BATCHES}
"""Searcher for release 0.12."""


def minor(release):
    return int(release.split(".")[1])


def install(release, site):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    parts = ["determined==" + release]
    if minor(release) < 15:
        parts.append("determined-common==" + release)
    subprocess.run([*pip, *parts], check=True)
    sys.path.insert(0, str(site))


def make_trial():
    import numpy as np
    import tensorflow as tf
    from determined import keras

    layers = tf.keras.layers

    class Trial(keras.TFKerasTrial):
        def __init__(self, context):
            self.context = context

        def build_model(self):
            first, last = layers.Dense(2, input_shape=(3,)), layers.Dense(1)
            parts = [first, layers.BatchNormalization(), layers.Dropout(0.1), last]
            model = self.context.wrap_model(tf.keras.Sequential(parts))
            optimizer = tf.keras.optimizers.Adam(0.01)
            if hasattr(self.context, "wrap_optimizer"):
                optimizer = self.context.wrap_optimizer(optimizer)
            model.compile(optimizer, "mse")
            return model

        def build_training_data_loader(self):
            rows = np.random.RandomState(3).randn(40, 3).astype("float32")
            return rows, rows.sum(1, keepdims=True)

        build_validation_data_loader = build_training_data_loader

        def keras_callbacks(self):
            if not hasattr(keras, "callbacks"):
                return []

            class Counter(keras.callbacks.Callback):
                def get_state(self):
                    return {"counted": 3}

            stops = keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True)
            # No loss improves by 1e9, so the second validation halves the learning rate.
            halves = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=1e9)
            return [Counter(), stops, halves]

    Trial.__module__, Trial.__qualname__ = "model_def", "Trial"
    return Trial


def note_what_is_saved(controller_class):
    """Write ``expected.json`` after each save, before any random numbers are drawn."""
    import numpy as np
    import tensorflow as tf

    save = controller_class._save_checkpoint

    def noting(self, path):
        if hasattr(self, "wlsq"):
            fill_in_sequencer(self)
        response = save(self, path)
        held = {
            "weights": [value.tolist() for value in self.model.get_weights()],
            "optimizer": [value.tolist() for value in self.model.optimizer.get_weights()],
            "learning_rate": float(tf.keras.backend.get_value(self.model.optimizer.lr)),
            "drawn_next": [random.random(), np.random.random()],
        }
        if hasattr(tf.random, "get_global_generator") and tf.executing_eagerly():
            held["drawn_next_by_tensorflow"] = tf.random.get_global_generator().uniform([2]).numpy().tolist()
        Path(str(path), "expected.json").write_text(json.dumps(held))
        return response

    controller_class._save_checkpoint = noting


def fill_in_sequencer(controller):
    from determined.layers import WorkloadSequencer

    controller.wlsq = object.__new__(WorkloadSequencer)
    controller.wlsq.state = state = WorkloadSequencer.SavableState(trial_id=1, step_id=BATCHES, last_ckpt=BATCHES)
    setattr(state, "latest_batch" if hasattr(state, "latest_batch") else "steps_completed", BATCHES)


def train(release, trial_class):
    """Run the local test mode, as ``create(local=True, test=True)`` does, with other workloads."""
    from determined import workload
    from determined.experimental import _native

    def workloads(_config):
        for done in range(BATCHES):
            yield workload.train_workload(done + 1), workload.ignore_workload_response
        for _ in range(2):
            yield workload.validation_workload(), workload.ignore_workload_response
        yield workload.checkpoint_workload(), workload.ignore_workload_response

    def old_workloads(path, _config):
        for done in range(BATCHES):
            count = {} if minor(release) == 12 else {"total_batches_processed": done}
            args = [1] if minor(release) == 12 else []
            yield workload.train_workload(done + 1, **count), args, workload.ignore_workload_response
        for _ in range(2):
            yield workload.validation_workload(1), [], workload.ignore_workload_response
        yield workload.checkpoint_workload(), [path], workload.ignore_workload_response
        yield workload.terminate_workload(), [], workload.ignore_workload_response

    made = old_workloads if minor(release) < 15 else workloads
    if minor(release) == 12:
        _native.make_test_workloads = made
    else:
        _native._make_test_workloads = made
    more = {"context_path": Path.cwd()} if minor(release) == 12 else {}
    config = dict(CONFIG, searcher=OLD_SEARCHER) if minor(release) == 12 else CONFIG
    _native.test_one_batch(trial_class=trial_class, config=config, **more)


def download(release, saved, work):
    """Let the release download a checkpoint, which adds ``metadata.json``, and return the directory."""
    from determined.common.experimental.checkpoint import Checkpoint

    storage = {"type": "shared_fs", "host_path": str(saved.parent)}
    nothing = dict.fromkeys(("session", "start_time", "end_time", "resources", "validation"))
    checkpoint = Checkpoint(
        uuid=saved.name,
        experiment_config=dict(CONFIG, entrypoint="model_def:Trial", checkpoint_storage=storage),
        experiment_id=1,
        trial_id=1,
        hparams=CONFIG["hyperparameters"],
        batch_number=BATCHES,
        metadata={},
        determined_version=release,
        framework="tensorflow-2.4.4",
        format="saved_weights",
        **nothing,
    )
    return Path(checkpoint.download(str(work / "downloaded")))


def keep_temporary_directories():
    """Keep the checkpoint, which the local test mode of releases until 0.13 deletes."""
    tempfile.TemporaryDirectory.cleanup = lambda self: self._finalizer.detach()


def main(release, directory):
    work = Path(tempfile.mkdtemp())
    (work / "context").mkdir()
    os.chdir(str(work / "context"))
    install(release, work / "site")
    os.environ["XDG_DATA_HOME"] = str(work)
    tempfile.tempdir = str(work)
    trial_class = make_trial()
    note_what_is_saved(trial_class.trial_controller_class)
    keep_temporary_directories()
    train(release, trial_class)

    (saved,) = {path.parent for path in work.rglob("expected.json")}
    if release == "0.17.6":
        saved = download(release, saved, work)
    for pattern in KEPT:
        for file in saved.glob(pattern):
            target = Path(directory) / file.relative_to(saved)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file), str(target))
    shutil.rmtree(str(work))


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2]).resolve()))
