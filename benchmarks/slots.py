"""Time per batch of det on two slots, compared with a script for torchrun that trains the same model with DDP.

    python benchmarks/slots.py [step-mlp | step-cnn | start | scaling ...]

Both train in separate processes with one thread each. They take turns. While one trains a round of batches, the other
waits. det reports the loss of all batches at the end of each round, and the script reports nothing. Ratios are medians
over rounds, with their quartiles. ``start`` is the time from the start of the launcher to the first batch. ``scaling``
is the number of records per second on two slots, divided by that on one slot without a launcher and without DDP.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import trainers
from trainers import BATCH_SIZE, Turns, build, dataset, loss_of, optimizer_of

GOAL = 1.05
"""Maximum ratio of det's time per batch to that of the script."""
BATCHES = 100
"""Number of batches in a round, which det reports together."""
ROUNDS = {"step-mlp": 50, "step-cnn": 50, "start": 7, "scaling": 25}
KINDS = {"step-mlp": "wide", "step-cnn": "cnn"}
"""Case -> model that it trains."""
PATIENCE = 120.0
"""Time limit in seconds for a start or a round."""
LAUNCHERS = {
    "by hand": [Path(sys.executable).with_name("torchrun"), "--standalone", "--nproc-per-node", "2"],
    "det": [sys.executable, "-m", "det_core.launch", "torch_distributed", "--slots", "2", "--"],
}


def by_hand(kind: str, turn: Callable[[], None]) -> None:
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

    model, data = build(kind), dataset()
    sampler: Any = RandomSampler(data)
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")
        model = DistributedDataParallel(model, forward_sync_buffers=False)  # as det does not either
        sampler = DistributedSampler(data)
    batches, optimizer = DataLoader(data, BATCH_SIZE, sampler=sampler), optimizer_of(model)
    for epoch in count():
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        for batch in batches:
            turn()
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()


def det(kind: str, turn: Callable[[], None]) -> None:
    trainers.det(trainers.Case(kind, BATCHES, BATCHES), turn)


TRAINERS = {"by hand": by_hand, "det": det}


def train(name: str, kind: str, port: int) -> None:
    """Train in one of the processes. Rank 0 takes turns, and the others wait for its gradients.

    Args:
        name: a key of `TRAINERS`.
        kind: the model.
        port: port of the benchmark, to which rank 0 connects.
    """
    import torch

    torch.set_num_threads(1)
    if os.environ.get("RANK", "0") == "0":
        connection = socket.create_connection(("127.0.0.1", port))
        sys.stdin, sys.stdout = connection.makefile("r"), connection.makefile("w")
        TRAINERS[name](kind, Turns(BATCHES))
    TRAINERS[name](kind, lambda: None)


class Contender:
    """Processes that train together, one round at each call.

    Args:
        name: a key of `TRAINERS`.
        kind: the model.
        directory: the working directory.
        slots: number of processes.
    """

    def __init__(self, name: str, kind: str, directory: Path, slots: int = 2) -> None:
        self._output = directory / f"{name}-{slots}.txt"
        environment = {"DET_HOME": str(directory / "det"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        with socket.create_server(("127.0.0.1", 0)) as server, self._output.open("w") as output:
            command = [*(LAUNCHERS[name] if slots > 1 else [sys.executable]), __file__, "--train", name, kind]
            started = time.perf_counter()
            self._process = subprocess.Popen(
                [*command, str(server.getsockname()[1])],
                cwd=directory,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            server.settimeout(PATIENCE)
            try:
                connection, _ = server.accept()
            except TimeoutError as error:
                self._process.terminate()
                raise self._failed() from error
        connection.settimeout(PATIENCE)
        self._lines = connection.makefile("rw")
        self._read()
        self.first_batch = time.perf_counter() - started

    def round(self) -> float:
        """Train one round, and return the microseconds per batch."""
        print("go", file=self._lines, flush=True)
        return self._read()

    def close(self) -> None:
        self._lines.close()  # the process that reads there exits; on a signal alone, det would save first
        self._process.terminate()
        self._process.wait(PATIENCE)

    def _read(self) -> float:
        try:
            return float(self._lines.readline().partition(" ")[0])
        except (OSError, ValueError) as error:
            self.close()
            raise self._failed() from error

    def _failed(self) -> RuntimeError:
        return RuntimeError(f"the processes did not train; they printed:\n{self._output.read_text()}")


def take_turns(contenders: Sequence[Contender], rounds: int) -> list[list[float]]:
    """Return the times of all rounds for each contender."""
    for contender in contenders:
        contender.round()  # the warm-up
    times = [[contender.round() for contender in contenders] for _ in range(rounds)]
    for contender in contenders:
        contender.close()
    return [list(column) for column in zip(*times, strict=True)]


def spread(ratios: Sequence[float]) -> str:
    first, middle, last = statistics.quantiles(ratios, n=4)
    return f"{middle:6.3f} ({first:.3f} to {last:.3f})"


def step(case: str, directory: Path) -> None:
    times = take_turns([Contender(name, KINDS[case], directory) for name in TRAINERS], ROUNDS[case])
    print(f"\n{case}, 2 slots: {ROUNDS[case]} rounds of {BATCHES} batches; goal: {GOAL}")
    for name, of_rounds in zip(TRAINERS, times, strict=True):
        ratios = [time / base for time, base in zip(of_rounds, times[0], strict=True)]
        print(f"  {name:9}{statistics.median(of_rounds):8.1f} us/batch  x by hand {spread(ratios)}", flush=True)


def start(case: str, directory: Path) -> None:
    found: dict[str, list[float]] = {name: [] for name in TRAINERS}
    for _ in range(ROUNDS[case]):
        for name, times in found.items():
            contender = Contender(name, "wide", directory)
            contender.close()
            times.append(contender.first_batch)
    print("\nstart of the launcher to the first batch, 2 slots")
    for name, times in found.items():
        ratios = [time / base for time, base in zip(times, found["by hand"], strict=True)]
        print(f"  {name:9}{statistics.median(times):8.2f} s         x by hand {spread(ratios)}", flush=True)


def scaling(case: str, directory: Path) -> None:
    places = [(name, slots) for name in TRAINERS for slots in (1, 2)]
    times = take_turns([Contender(name, "cnn", directory, slots) for name, slots in places], ROUNDS[case])
    print("\nscaling from 1 slot to 2, the same batch on each")
    for name, one, two in zip(TRAINERS, times[::2], times[1::2], strict=True):
        middle = " -> ".join(f"{statistics.median(of_rounds):.1f}" for of_rounds in (one, two))
        ratios = [2 * alone / both for alone, both in zip(one, two, strict=True)]
        print(f"  {name:9}{middle} us/batch  x records {spread(ratios)}", flush=True)


CASES = {"step-mlp": step, "step-cnn": step, "start": start, "scaling": scaling}


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    for case in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as directory:
            CASES[case](case, Path(directory))


if __name__ == "__main__":
    main()
