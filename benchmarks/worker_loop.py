"""Time per batch of a worker of ``det run``, compared with a plain loop in the same process.

    python benchmarks/worker_loop.py [ROUNDS]

Both train an MLP 64-128-10 with SGD and batches of 32. They take turns of 100 batches, so that what else happens on
the machine hits both alike. det reports the losses of all hundred batches, also to TensorBoard. CPU time is that of all
threads of the worker. What its writer threads do during a turn of the plain loop counts as det's, too. The ratios are
medians over rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 60
GOAL = 1.06

TRIAL = """
import json, os, time, torch
from torch.nn import functional
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

BATCHES, WARM_UP = 100, 5
torch.set_num_threads(1)

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)

def make_data():
    return TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))

def plain():
    model, loader = make_model(), torch.utils.data.DataLoader(make_data(), batch_size=32, shuffle=True)
    optimizer = make_optimizer(model)
    while True:
        for inputs, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            yield

def times():
    return time.perf_counter(), time.thread_time(), time.process_time()

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(make_optimizer(self.model))
        self.plain, self.rounds = plain(), []

    def build_training_data_loader(self):
        return DataLoader(make_data(), batch_size=32, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx % BATCHES == 1:  # the first batch after a report belongs to it
            before = times()
            if batch_idx > 1:
                for _ in range(BATCHES):
                    next(self.plain)
                self.rounds.append((self.start, before, times()))
            self.start = times()
        inputs, labels = batch
        loss = functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        with open(os.environ["CLOCKS"], "w") as file:
            json.dump(self.rounds[WARM_UP:], file)
        return {"loss": 0.0}
"""
CONFIG = """
name: worker loop
entrypoint: model_def:Trial
searcher: {name: single, metric: loss, max_length: {batches: BATCHES}}
scheduling_unit: 100
"""


def ratios(start: Sequence[float], middle: Sequence[float], end: Sequence[float]) -> dict[str, float]:
    """Return the ratios of det's times to those of the plain loop.

    Args:
        start: clocks before det's turn: wall-clock time, CPU time of the main thread, and that of the process.
        middle: clocks between the turns.
        end: clocks after the turn of the plain loop.
    """
    wall, thread, process = (after - before for before, after in zip(start, middle, strict=True))
    plain_wall, plain_thread, plain_process = (after - before for before, after in zip(middle, end, strict=True))
    return {
        "wall-clock time": wall / plain_wall,
        "CPU time": (process + plain_process - plain_thread) / plain_thread,
        "CPU time of the main thread": thread / plain_thread,
    }


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "model_def.py").write_text(TRIAL)
        (directory / "const.yaml").write_text(CONFIG.replace("BATCHES", str(100 * (rounds + 6))))
        clocks = directory / "clocks.json"
        environment = {**os.environ, "CLOCKS": str(clocks), "DET_HOME": str(directory / "home")}
        command = [Path(sys.executable).with_name("det"), "run", directory / "const.yaml"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        found = [ratios(*one) for one in json.loads(clocks.read_text())]
    print(f"{len(found)} rounds of 100 batches, medians of the ratios to the plain loop (goal {GOAL})")
    for what in found[0]:
        print(f"  {what:28}{statistics.median(each[what] for each in found):6.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
