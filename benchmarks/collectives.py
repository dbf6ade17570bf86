"""Times of det's collectives, compared with those of the system that it replaces.

Each figure is the median over ROUNDS interleaved jobs of n processes each. Rank 0 of a job measures the mean over its
calls.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from environments import original

ROUNDS = 5
SIZES = (2, 4, 8)
SMALL, MEGABYTE = 0.5, os.urandom(1 << 20)
CASES: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "allgather small": (1000, lambda job: job.allgather(SMALL)),
    "allgather_local small": (1000, lambda job: job.allgather_local(SMALL)),
    "gather small": (1000, lambda job: job.gather(SMALL)),
    "broadcast small": (300, lambda job: job.broadcast(SMALL)),  # on the chief, which does not wait
    "allgather 1 MB": (20, lambda job: job.allgather(MEGABYTE)),
}
"""Number of calls in a job, and the call."""
GOALS = {("allgather small", 8): 1 / 2, ("allgather 1 MB", 8): 1 / 3}
"""Maximum ratios of det's time to that of the original, by case and number of processes."""


def work(package: str, rank: int, size: int, ports: list[int]) -> dict[str, float]:
    """Run one worker, and return the seconds of the set-up and of one call of each case."""
    core = __import__(package, fromlist=["DistributedContext"])
    start = time.perf_counter()
    job = core.DistributedContext(
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        cross_rank=0,
        cross_size=1,
        pub_port=ports[0],
        pull_port=ports[1],
    )
    seconds = {"set-up": time.perf_counter() - start}
    for name, (calls, call) in CASES.items():
        for _ in range(calls // 5):
            call(job)
        job.allgather(None)
        start = time.perf_counter()
        for _ in range(calls):
            call(job)
        seconds[name] = (time.perf_counter() - start) / calls
        job.allgather(None)
    job.close()
    return seconds


def run(python: str, package: str, size: int) -> dict[str, float]:
    """Run one job, and return what its rank 0 measured."""
    job = {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "OMP_NUM_THREADS": "1"}
    ports = " ".join(map(str, free_ports(2)))
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [python, __file__, package, str(rank), str(size), *ports.split()],
                    env={**os.environ, **job},
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                )
            )
            for rank in range(size)
        ]
        output = workers[0].communicate()[0]
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"{package} failed with {size} processes")
    seconds: dict[str, float] = json.loads(output)
    return seconds


def free_ports(count: int) -> Iterator[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield from [sock.getsockname()[1] for sock in sockets]


def main() -> None:
    systems = {"det": (sys.executable, "det_core.core"), "original": (str(original()), "determined.core")}
    print(f"{'':24}{'n':>3}{'det, us':>12}{'original, us':>14}{'ratio':>8}{'goal':>7}")
    for size in SIZES:
        rounds = [{name: run(*system, size) for name, system in systems.items()} for _ in range(ROUNDS)]
        for case in ("set-up", *CASES):
            ours, theirs = (1e6 * statistics.median(each[name][case] for each in rounds) for name in systems)
            goal = GOALS.get((case, size))
            print(f"{case:24}{size:3}{ours:12.1f}{theirs:14.1f}{ours / theirs:8.2f}{f'{goal:7.2f}' if goal else ''}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        package, rank, size, *ports = sys.argv[1:]
        print(json.dumps(work(package, int(rank), int(size), [int(port) for port in ports])))
    else:
        main()
