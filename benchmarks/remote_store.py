"""Speed of the tracking store of a worker on another host, compared with a store that the worker opens itself.

The calls go through the socket of an agent in another process, which executes them. The way from the agent to the
runner is not part of it.

python benchmarks/remote_store.py
"""

from __future__ import annotations

import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from tracking import METRICS, ours, report

from det_core.core.agent_channel import SOCKET
from det_core.interfaces.tracking import TrackingStore
from det_core.launch._worker_connections import WorkerConnections
from det_core.tracking import AGENT_URL, open_store
from det_core.tracking.remote import answer_call, open_remote_store

SIZES = {1: 1_000, 100: 20_000, 1000: 20_000}
"""Number of reports in a batch -> total number of reports."""
READS = 1_000
ROUNDS = 3


def serve(url: str, path: str, pipe: Connection) -> None:
    """Execute the calls that arrive at a socket until the pipe is closed."""
    with open_store(url) as store:
        connections = WorkerConnections(Path(path), partial(answer_call, store))
        pipe.send(None)
        pipe.recv()
        connections.close()


@contextmanager
def served(url: str, path: str) -> Iterator[None]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(url, path, theirs))
    server.start()
    ours.recv()
    yield
    ours.send(None)
    server.join()


def reads(store: TrackingStore) -> float:
    """Return the number of small reads per second."""
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0).id
    start = time.perf_counter()
    for _ in range(READS):
        store.trial(trial)
    return READS / (time.perf_counter() - start)


def bytes_per_report(count: int) -> float:
    """Return the size of a call with some reports, per report."""
    sizes: list[int] = []

    def call(method: str, body: bytes) -> bytes:
        sizes.append(len(body))
        return b'{"returned":null}'

    reports = [
        replace(report(1, 1, step), metrics={name: random.random() for name in METRICS}) for step in range(count)
    ]
    open_remote_store(call, url="").report_metrics(reports)
    return sizes[0] / count


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.environ[SOCKET] = f"{directory}/agent.sock"
        url = f"sqlite:///{directory}/det.db"
        with open_store(url) as direct, served(url, os.environ[SOCKET]), open_store(AGENT_URL) as remote:
            print(f"{'':>22} {'direct':>10} {'remote':>10} {'ratio':>6}")
            measures = {f"reports/s by {batch}": partial(ours, batch=batch, total=SIZES[batch]) for batch in SIZES}
            for name, measure in {**measures, "small reads/s": reads}.items():
                rounds = [(measure(direct), measure(remote)) for _ in range(ROUNDS)]
                here, there = (max(rates) for rates in zip(*rounds, strict=True))
                print(f"{name:>22} {here:>10,.0f} {there:>10,.0f} {there / here:>6.2f}")
    sizes = ", ".join(f"{bytes_per_report(batch):.0f} in calls of {batch}" for batch in SIZES)
    print(f"bytes per report of {len(METRICS)} numbers: {sizes}")


if __name__ == "__main__":
    main()
