"""Time of a search whose trials are short, compared with Ray Tune and with a plain loop in one process.

    python benchmarks/short_trials.py [ROUNDS]

A random search trains 24 models of the digits example for 45 batches each, on two slots. det imports sklearn in each
worker, or once (``launcher.prepare``). Ray Tune uses its actors again for the next trial (``reuse_actors``). It shows
its time with and without the start of Ray. The plain loop trains all models one after the other, and records nothing.

The second part has 64 trials that train for a second each. Its ratio is to 32 s, the time that two slots need at least.
Each figure is a median over rounds in which the cases take turns.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from environments import ROOT, programs

ROUNDS = 3
TRIALS, SLOTS = 24, 2
LIMIT = 600
GOALS = {"det": 20.0, "det, sklearn prepared": 12.0}
"""Seconds of the whole command on two quiet cores."""
SECOND_TRIALS = 64
"""Number of trials that train for a second each."""
SECOND_TRIALS_GOAL = 1.3

TRAINING = """
import random
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset

def sample(number):
    draw = random.Random(number)
    return {"lr": 10 ** draw.uniform(-4, -2), "hidden": draw.randint(32, 256)}

def train(hparams):
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    order = numpy.random.default_rng(0).permutation(len(data)).tolist()
    layers = torch.nn.Linear(64, hparams["hidden"]), torch.nn.ReLU(), torch.nn.Dropout(0.2)
    model = torch.nn.Sequential(*layers, torch.nn.Linear(hparams["hidden"], 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["lr"])
    for inputs, targets in DataLoader(Subset(data, order[360:]), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        inputs, targets = next(iter(DataLoader(Subset(data, order[:360]), batch_size=360)))
        return functional.cross_entropy(model(inputs), targets).item()
"""
PLAIN = f"""
from training import sample, train
print(min(train(sample(number)) for number in range({TRIALS})))
"""
RAY = f"""
import time
import ray
from ray import tune
from training import sample, train

class Digits(tune.Trainable):
    def setup(self, config):
        self.number = config["number"]

    def step(self):
        return {{"validation_loss": train(sample(self.number)), "done": True}}

    def reset_config(self, config):
        self.number = config["number"]
        return True

    def save_checkpoint(self, directory):
        pass

    load_checkpoint = save_checkpoint

ray.init(num_cpus={SLOTS}, include_dashboard=False, runtime_env={{"working_dir": "."}}, log_to_driver=False)
start = time.monotonic()
tune.Tuner(
    Digits,
    param_space={{"number": tune.grid_search(list(range({TRIALS})))}},
    tune_config=tune.TuneConfig(reuse_actors=True),
    run_config=tune.RunConfig(verbose=0),
).fit()
print("search", time.monotonic() - start)
"""
SEARCH = f"""
name: short trials
entrypoint: model_def:DigitsTrial
hyperparameters:
  global_batch_size: 32
  dropout: 0.2
  lr: {{type: log, base: 10, minval: -4, maxval: -2}}
  hidden: {{type: int, minval: 32, maxval: 256}}
searcher:
  {{name: random, metric: validation_loss, smaller_is_better: true, max_trials: {TRIALS}, max_length: {{batches: 45}}}}
launcher: {{slots: {SLOTS}}}
"""
SECONDS = f"""
name: trials of one second
entrypoint: seconds:OneSecond
hyperparameters: {{global_batch_size: 32}}
searcher: {{name: random, metric: loss, max_trials: {SECOND_TRIALS}, max_length: {{batches: 10}}}}
launcher: {{slots: {SLOTS}}}
"""
ONE_SECOND = """
import time, torch
from det_torch import DataLoader, PyTorchTrial

class OneSecond(PyTorchTrial):
    def build_model(self):
        return torch.nn.Linear(1, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def build_training_data_loader(self):
        return DataLoader(torch.utils.data.TensorDataset(torch.ones(320, 1)), batch_size=32)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        time.sleep(0.1)
        return model(batch[0]).mean()

    def evaluate_batch(self, batch, model):
        return {"loss": model(batch[0]).mean()}
"""
FILES = {
    "training.py": TRAINING,
    "plain.py": PLAIN,
    "ray_tune.py": RAY,
    "search.yaml": SEARCH,
    "seconds.yaml": SECONDS,
    "seconds.py": ONE_SECOND,
    "model_def.py": (ROOT / "examples/digits_pytorch/model_def.py").read_text(encoding="utf-8"),
}


def run(directory: Path, *command: str | Path) -> tuple[float, str]:
    """Run a command to its end, and return its seconds and its output."""
    environment = {**os.environ, "DET_HOME": str(directory / "home"), "RAY_AIR_NEW_OUTPUT": "0"}
    start = time.monotonic()
    ran = subprocess.run(
        [str(word) for word in command], cwd=directory, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    if ran.returncode:
        raise SystemExit(f"{command} failed:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
    return time.monotonic() - start, ran.stdout


def one_round(directory: Path) -> Mapping[str, float]:
    """Return the seconds of each case."""
    det = Path(sys.executable).with_name("det")
    prepared = "launcher.prepare=[sklearn.datasets]"
    seconds = {
        "plain loop": run(directory, sys.executable, "plain.py")[0],
        "det": run(directory, det, "run", "search.yaml")[0],
        "det, sklearn prepared": run(directory, det, "run", "search.yaml", "--config", prepared)[0],
    }
    seconds["Ray Tune"], printed = run(directory, programs("ray") / "python", "ray_tune.py")
    (search,) = re.findall(r"^search (.+)$", printed, re.MULTILINE)
    return {**seconds, "Ray Tune without its start": float(search)}


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in FILES.items():
            (directory / file).write_text(text, encoding="utf-8")
        found = [one_round(directory) for _ in range(rounds)]
        print(f"{TRIALS} trials of 45 batches on {SLOTS} slots")
        print(f"  {'':28}{'seconds':>9}{'x plain':>9}{'goal':>7}")
        for case in found[0]:
            seconds = statistics.median(each[case] for each in found)
            ratio = statistics.median(each[case] / each["plain loop"] for each in found)
            print(f"  {case:28}{seconds:9.1f}{ratio:9.2f}{GOALS.get(case, ''):>7}", flush=True)
        seconds, _ = run(directory, Path(sys.executable).with_name("det"), "run", "seconds.yaml")
        print(f"{SECOND_TRIALS} trials of one second on {SLOTS} slots: {seconds:.1f} s, ", end="")
        print(f"{seconds / (SECOND_TRIALS / SLOTS):.2f} of their training (goal {SECOND_TRIALS_GOAL})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
