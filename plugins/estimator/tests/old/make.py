"""Make a checkpoint with an old release of the original system: ``python make.py RELEASE DIRECTORY [serving]``.

Run it once per release, with a Python that has a TensorFlow of that time and the dependencies of the release. The
release itself is installed into a temporary directory, without dependencies. The checkpoints next to this file were
made this way, all with Python 3.7.16:

    release           TensorFlow   numpy    with
    0.17.15           1.15.5       1.18.5
    0.18.4            2.4.4        1.19.5
    0.19.10, 0.20.1   2.8.4        1.21.6   serving (0.19.10 only)

The release trains five batches and saves with its own code, in its local test mode. Two things differ from a cluster:

- Five workloads of one batch replace the single workload of the test mode.
- A release writes ``workload_sequencer.pkl`` only when it has a master. This script fills in the state of its
  sequencer. The class, its pickling and the file are those of the release.

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
    "checkpoint",
    "expected.json",
    "load_data.json",
    "metadata.json",
    "model.ckpt-*.data-*",
    "model.ckpt-*.index",
    "rng_state.pkl",
    "served/*/saved_model.pb",
    "served/*/variables/*",
    "workload_sequencer.pkl",
)
CONFIG = {
    "description": "old checkpoint",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": BATCHES}},
    "resources": {"slots_per_trial": 1},
}


def install(release, site):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, "determined==" + release], check=True)
    sys.path.insert(0, str(site))


def make_trial():
    import numpy as np
    import tensorflow as tf
    from determined import estimator

    v1 = tf.compat.v1

    class Trial(estimator.EstimatorTrial):
        def __init__(self, context):
            self.context = context

        def model_fn(self, features, labels, mode):
            answer = v1.layers.dense(v1.layers.dense(features["rows"], 2, name="hidden"), 1, name="answer")
            if mode == v1.estimator.ModeKeys.PREDICT:
                return v1.estimator.EstimatorSpec(mode, {"answer": answer})
            loss = v1.losses.mean_squared_error(labels, answer)
            optimizer = self.context.wrap_optimizer(v1.train.AdamOptimizer(0.01))
            step = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
            return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

        def build_estimator(self):
            return v1.estimator.Estimator(self.model_fn)

        def data(self):
            rows = np.random.RandomState(3).randn(40, 3).astype("float32")
            dataset = v1.data.Dataset.from_tensor_slices(({"rows": rows}, rows.sum(1, keepdims=True)))
            return self.context.wrap_dataset(dataset).batch(4)

        def build_train_spec(self):
            return v1.estimator.TrainSpec(self.data)

        def build_validation_spec(self):
            return v1.estimator.EvalSpec(self.data)

        def build_serving_input_receiver_fns(self):
            if sys.argv[3:] != ["serving"]:
                return {}
            rows = v1.placeholder("float32", [None, 3])
            return {"served": v1.estimator.export.build_raw_serving_input_receiver_fn({"rows": rows})}

    return Trial


def note_what_is_saved(hook_class):
    """Write ``expected.json`` after each save, before any random numbers are drawn."""
    import numpy as np

    save = hook_class._checkpoint_model

    def noting(self, path):
        fill_in_sequencer(self.estimator_trial_controller)
        save(self, path)
        variables = {one.op.name: one for one in self._session.graph.get_collection("variables")}
        held = {
            "variables": {name: value.tolist() for name, value in self._session.run(variables).items()},
            "drawn_next": [random.random(), np.random.random()],
        }
        Path(str(path), "expected.json").write_text(json.dumps(held))

    hook_class._checkpoint_model = noting


def fill_in_sequencer(controller):
    from determined.layers import WorkloadSequencer

    controller.wlsq = object.__new__(WorkloadSequencer)
    controller.wlsq.state = state = WorkloadSequencer.SavableState(trial_id=1, step_id=BATCHES, last_ckpt=BATCHES)
    setattr(state, "latest_batch" if hasattr(state, "latest_batch") else "steps_completed", BATCHES)


def train(trial_class):
    """Run the local test mode, as ``create(local=True, test=True)`` does, with other workloads."""
    from determined import workload
    from determined.experimental import _native

    def workloads(_config):
        for done in range(BATCHES):
            yield workload.train_workload(done + 1), workload.ignore_workload_response
        yield workload.checkpoint_workload(), workload.ignore_workload_response

    _native._make_test_workloads = workloads
    _native.test_one_batch(trial_class=trial_class, config=CONFIG)


def main(release, directory):
    work = Path(tempfile.mkdtemp())
    (work / "context").mkdir()
    os.chdir(str(work / "context"))
    install(release, work / "site")
    os.environ["XDG_DATA_HOME"] = str(work)
    tempfile.tempdir = str(work)

    from determined.estimator import _estimator_trial

    trial_class = make_trial()
    note_what_is_saved(_estimator_trial.DeterminedControlHook)
    train(trial_class)

    (saved,) = {path.parent for path in work.rglob("expected.json")}
    for pattern in KEPT:
        for file in saved.glob(pattern):
            target = Path(directory) / file.relative_to(saved)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file), str(target))
    shutil.rmtree(str(work))


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2]).resolve()))
