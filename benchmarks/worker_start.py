"""Time from the start of a process to its first batch: a plain script, ``det_torch.init()``, ``det run``, a restart.

    python benchmarks/worker_start.py [ROUNDS]

All train the same small model. Each line is a median over rounds in which the cases take turns. A restart begins when
the worker kills itself in its first batch. Its worker is a fork of a process that has imported torch, or, with
``launcher.prepare: false``, a new process.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 9
RESTART = "restart of a killed worker"
GOALS = {"det_torch.init()": 0.3, "det run": 0.6, RESTART: 0.7}
"""Seconds above the plain script, except for restarts, which the plain script has no part in."""

PLAIN = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(640, 64), torch.randint(10, (640,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, labels in DataLoader(data, batch_size=32, shuffle=True):
    print(time.monotonic(), flush=True)
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    break
"""
TRIAL = """
import os, pathlib, signal, time, torch
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.data = TensorDataset(torch.randn(640, 64), torch.randint(10, (640,)))

    def build_training_data_loader(self):
        return DataLoader(self.data, batch_size=32, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        with open(os.environ["FIRST_BATCHES"], "a") as file:
            starts = file.tell()
            file.write(f"{time.monotonic()}\\n")
        if not starts and "KILL" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        return {"loss": 0.0}
"""
SCRIPT = """
import det_torch
from model_def import Trial

with det_torch.init() as context:
    det_torch.Trainer(Trial(context), context).fit(max_length=det_torch.Batch(1))
"""
CONFIG = """
name: worker start
entrypoint: model_def:Trial
searcher: {name: single, metric: loss, max_length: {batches: 1}}
"""
FILES = {"plain.py": PLAIN, "model_def.py": TRIAL, "script.py": SCRIPT, "const.yaml": CONFIG}


def first_batches(directory: Path, *command: str, **env: str) -> tuple[float, list[float]]:
    """Run a command to its end. Return when it started and when each first batch began, on the monotonic clock."""
    marks, home = directory / "first_batches", directory / "home"
    marks.write_text("")
    environment = {**os.environ, "FIRST_BATCHES": str(marks), "DET_HOME": str(home), **env}
    start = time.monotonic()
    ran = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ran.stdout}{ran.stderr}")
    printed = ran.stdout if command[-1] == "plain.py" else marks.read_text()
    return start, [float(line) for line in printed.splitlines()]


def one_round(directory: Path) -> dict[str, float]:
    """Return the seconds of each case."""
    python, det = sys.executable, str(Path(sys.executable).with_name("det"))
    seconds = {}
    for name, command in {
        "plain script": (python, "plain.py"),
        "det_torch.init()": (python, "script.py"),
        "det run": (det, "run", "const.yaml"),
    }.items():
        start, (batch, *_) = first_batches(directory, *command)
        seconds[name] = batch - start
    for name, *options in ((RESTART,), (f"{RESTART}, new", "--config", "launcher.prepare=false")):
        _, (killed, again) = first_batches(directory, det, "run", "const.yaml", *options, KILL="1")
        seconds[name] = again - killed
    return seconds


def main(rounds: int) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each process would compile det's modules again
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in FILES.items():
            (directory / file).write_text(text)
        one_round(directory)  # writes the bytecode and creates the database
        found = []
        for _ in range(rounds):
            found.append(one_round(directory))
            shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    print(f"{'':34}{'seconds':>9}{'over plain':>12}{'goal':>7}")
    for case in found[0]:
        added = statistics.median(each[case] - each["plain script"] for each in found)
        above = "" if case.startswith(RESTART) else f"{added:.2f}"
        print(f"{case:34}{statistics.median(each[case] for each in found):9.2f}{above:>12}{GOALS.get(case, ''):>7}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
