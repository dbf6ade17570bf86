"""Time that a killed worker costs: a trial of ``det run`` on two processes, beside torchrun's own restarts of a script.

    python benchmarks/goodput.py [FAILURES [SECONDS]]

Both train the same small model with DDP on two processes. A batch takes at least 50 ms, as one on a GPU would, and both
save a checkpoint every 20 batches. One after the other trains until a worker was killed FAILURES times, SECONDS apart
(by default 3 and 10; the goal is for one failure in 30 s). The lost time of a failure is the time from the kill until
the batch that was killed is done, without the batch itself. It consists of the restart, and of the batches since the
checkpoint, which are trained again. The lines of each show where the time goes, as medians in seconds.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from det_core.tracking import open_store

GOAL = 0.5
"""Maximum ratio of det's lost time per failure to that of torchrun."""
LIMIT = 120.0
"""Time limit in seconds of a start or a restart."""
CHECKPOINT_BATCHES, BATCH_SECONDS = 20, 0.05
COMMON = f"""
import json, os, time
import torch
from torch.utils.data import TensorDataset

CHECKPOINT_BATCHES, BATCH_SECONDS, BATCH_SIZE = {CHECKPOINT_BATCHES}, {BATCH_SECONDS}, 32
torch.set_num_threads(1)

def mark(event, batch=0, at=None):
    with open(os.environ["MARKS"], "a") as file:
        file.write(json.dumps([event, int(os.environ["RANK"]), os.getpid(), at or time.time(), batch]) + "\\n")

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

def make_data():
    return TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))

with open("/proc/self/stat") as file:
    ticks = int(file.read().rpartition(")")[2].split()[19])
mark("started", at=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK"))
mark("imported")
"""
SCRIPT = """
from common import *
from pathlib import Path
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

distributed.init_process_group("gloo")
model, data, saved, batch = DistributedDataParallel(make_model()), make_data(), Path("checkpoint.pt"), 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    batch = state["batch"]
sampler = DistributedSampler(data)
loader = DataLoader(data, BATCH_SIZE, sampler=sampler)
while True:
    epoch, skip = divmod(batch, len(loader))
    sampler.set_epoch(epoch)
    for index, (inputs, labels) in enumerate(loader):
        if index < skip:
            continue
        mark("batch", batch)
        time.sleep(BATCH_SECONDS)
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        batch += 1
        if batch % CHECKPOINT_BATCHES == 0 and distributed.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "batch": batch}
            torch.save(state, "checkpoint.new")
            os.replace("checkpoint.new", saved)
"""
TRIAL = """
from common import *
from torch.nn.functional import cross_entropy
from det_torch import DataLoader, PyTorchTrial

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))
        self.data = make_data()

    def build_training_data_loader(self):
        return DataLoader(self.data, batch_size=BATCH_SIZE, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        mark("batch", batch_idx)
        time.sleep(BATCH_SECONDS)
        inputs, labels = batch
        loss = cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": 0.0}
"""
CONFIG = f"""
name: goodput
entrypoint: model_def:Trial
hyperparameters: {{global_batch_size: 64}}
searcher: {{name: single, metric: loss, max_length: {{batches: 1000000}}}}
min_checkpoint_period: {{batches: {CHECKPOINT_BATCHES}}}
scheduling_unit: {CHECKPOINT_BATCHES}
max_restarts: 1000
resources: {{slots_per_trial: 2}}
launcher: {{type: local, slots: 2}}
distributed: {{backend: torch_distributed}}
"""
FILES = {"common.py": COMMON, "script.py": SCRIPT, "model_def.py": TRIAL, "const.yaml": CONFIG}
PROGRAMS = Path(sys.executable).parent
COMMANDS: Mapping[str, Sequence[str]] = {
    "torchrun": [
        str(PROGRAMS / "torchrun"),
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1000",
        "script.py",
    ],
    "det": [str(PROGRAMS / "det"), "run", "const.yaml"],
}


class Mark(NamedTuple):
    """Line that a worker wrote."""

    event: str
    rank: int
    pid: int
    time: float
    batch: int


class Failure(NamedTuple):
    """Kill of a worker.

    Attributes:
        time: when it happened, in seconds since 1970.
        batch: the last batch that a worker had begun.
    """

    time: float
    batch: int


class Contender:
    """Training by one of the commands, whose workers write marks.

    Args:
        name: a key of `COMMANDS`.
        directory: the working directory, which has `FILES`.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._marks = directory / f"marks-{name}"
        self._output = directory / f"output-{name}"
        environment = {
            "DET_HOME": str(directory / "home"),
            "DET_SLOTS_DIR": str(directory / "slots"),  # no other trial of this machine is waited for
            "MARKS": str(self._marks),
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # otherwise workers may read addresses of the killed ones
        }
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                COMMANDS[name],
                cwd=directory,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def marks(self, since: float = 0.0) -> list[Mark]:
        """Return the marks after a time, in order."""
        lines = self._marks.read_text().splitlines() if self._marks.exists() else []
        return sorted((one for one in (Mark(*json.loads(line)) for line in lines) if one.time >= since), key=_time)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait for a condition.

        Raises:
            SystemExit: the command has ended, or the time limit is over.
        """
        deadline = time.monotonic() + LIMIT
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"it does not train; it printed:\n{self._output.read_text()}")
            time.sleep(0.05)

    def kill_worker(self) -> Failure:
        """Kill the worker of rank 1, and wait until the batch that it trained is done."""
        before = self.marks()
        old = {one.pid for one in before}
        os.kill(next(one.pid for one in reversed(before) if one.rank == 1), signal.SIGKILL)
        now = time.time()

        def last_batch(*, of_old: bool) -> int:
            return max((one.batch for one in self.marks() if (one.pid in old) is of_old), default=0)

        self.wait_for(lambda: last_batch(of_old=False) > last_batch(of_old=True))
        return Failure(now, last_batch(of_old=True))

    def close(self) -> None:
        """End all processes."""
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):  # det first saves a checkpoint, then kills
            self._process.send_signal(number)
            try:
                self._process.wait(15)
                break
            except subprocess.TimeoutExpired:
                pass


def _time(mark: Mark) -> float:
    return mark.time


def measure(contender: Contender, failures: int, seconds: float) -> list[Failure]:
    """Let a contender train, and kill a worker again and again."""
    found = []
    try:
        contender.wait_for(lambda: any(one.batch >= CHECKPOINT_BATCHES for one in contender.marks()))
        for _ in range(failures):
            time.sleep(seconds)
            found.append(contender.kill_worker())
    finally:
        contender.close()
    return found


def phases(contender: Contender, failure: Failure, logged: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the seconds of the parts of the lost time.

    Args:
        contender: who was disturbed.
        failure: the kill.
        logged: lines of the log of the trial with their times. Only det has one.
    """
    marks = [one for one in contender.marks(failure.time) if one.rank == 0]
    pids = {one.pid for one in marks if one.event == "started"}
    new = [one for one in marks if one.pid in pids]
    begun = {one.event: one.time for one in reversed(new)}
    ends = {"from the kill": failure.time}
    later = [(when, text) for when, text in logged if when > failure.time]
    if later:
        ends["detection"] = later[0][0]
        ends["end of the others"] = next(when for when, text in later if "exited with code" in text)
    ends["start"] = begun["started"]
    ends["imports"] = begun["imported"]
    ends["load"] = begun["batch"]
    ends["batches again"] = next(one.time for one in new if one.batch > failure.batch) - BATCH_SECONDS
    return {name: after - before for (_, before), (name, after) in pairwise(ends.items())}


def trial_log(directory: Path) -> list[tuple[float, str]]:
    """Return the lines of the log of the only trial with their times."""
    os.environ["DET_HOME"] = str(directory / "home")
    with open_store() as store:
        return [(line.time.timestamp(), line.log) for line in store.logs(1)]


def main(failures: int, seconds: float) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each process would compile det's modules again
    lost = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in FILES.items():
            (directory / file).write_text(text)
        for command in COMMANDS:
            contender = Contender(command, directory)
            found = measure(contender, failures, seconds)
            logged = trial_log(directory) if command == "det" else []
            parts = [phases(contender, failure, logged) for failure in found]
            lost[command] = statistics.median(sum(each.values()) for each in parts)
            print(f"{command}: {lost[command]:.2f} s lost per failure")
            for part in parts[0]:
                print(f"  {part:20}{statistics.median(each[part] for each in parts):8.2f}", flush=True)
    print(f"ratio {lost['det'] / lost['torchrun']:.2f}, goal at most {GOAL}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
