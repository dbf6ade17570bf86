"""Jobs whose workers are threads or processes of this host, on one machine or several simulated ones."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from det_core.core import DistributedContext
from det_core.launch.network import find_adjacent_free_ports as free_port

T = TypeVar("T")
KEY = "k" * 64
HEAD = """
import os, pickle, random, signal, sys, time
from det_core.core import DistributedContext
from det_core.launch.network import find_adjacent_free_ports as free_port
from det_core.errors import CommError, OutOfStep, PeerLost
def join(**options):
    return DistributedContext(**eval(os.environ["TEST_RANKS"]), **options)
"""


def layout(*machines: int) -> list[dict[str, Any]]:
    """Return the ranks of all workers, from the number of workers of each machine."""
    return [
        {
            "rank": sum(machines[:machine]) + local,
            "size": sum(machines),
            "local_rank": local,
            "local_size": workers,
            "cross_rank": machine,
            "cross_size": len(machines),
        }
        for machine, workers in enumerate(machines)
        for local in range(workers)
    ]


def threads(ranks: Sequence[dict[str, Any]], work: Callable[[DistributedContext], T], **options: Any) -> list[T]:
    """Run ``work`` in a thread per worker, close its context at the end, and return the results."""
    return [future.result() for future in outcomes(ranks, work, **options)]


def outcomes(
    ranks: Sequence[dict[str, Any]], work: Callable[[DistributedContext], T], **options: Any
) -> list[Future[T]]:
    """Run ``work`` as in `threads`, and return the futures, which keep the errors of each worker."""
    options = {"chief_ip": "127.0.0.1", "pub_port": free_port(), **options}

    def run(place: dict[str, Any]) -> T:
        context = DistributedContext(**place, **options)
        try:
            return work(context)
        finally:
            context.close()

    with ThreadPoolExecutor(len(ranks)) as pool:
        return [pool.submit(run, place) for place in ranks]


@dataclass(frozen=True)
class Ended:
    """Result of a worker process, whose ``code`` is negative after a signal."""

    code: int
    out: str
    err: str


@contextmanager
def processes(
    ranks: Sequence[dict[str, Any]],
    body: str,
    *arguments: object,
    prefix: Callable[[int], list[str]] = lambda machine: [],
    **environ: str,
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a process per worker, which runs `HEAD` and ``body``. No process is left behind."""
    code = HEAD + textwrap.dedent(body)
    workers = [
        subprocess.Popen(
            [*prefix(place["cross_rank"]), sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, **environ, "TEST_RANKS": repr(place), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in ranks
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout, worker.stderr):
                if pipe:
                    pipe.close()


def ends(workers: Sequence[subprocess.Popen[str]], timeout: float = 60) -> list[Ended]:
    """Wait for all workers, and return their results."""
    outputs = [worker.communicate(timeout=timeout) for worker in workers]
    return [Ended(worker.returncode, *output) for worker, output in zip(workers, outputs, strict=True)]


def run(ranks: Sequence[dict[str, Any]], body: str, *arguments: object, **options: Any) -> list[str]:
    """Return the output of each worker. All workers must succeed."""
    with processes(ranks, body, *arguments, **options) as workers:
        ended = ends(workers)
    assert not any(each.code for each in ended), "\n".join(each.err for each in ended)
    return [each.out for each in ended]
