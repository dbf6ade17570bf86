"""Workers of one trial as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HEAD = """
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGUSR1)
from pathlib import Path
import det_core as det
from det_core import core
distributed = core.DistributedContext.from_torch_distributed()
rank, size = distributed.rank, distributed.size
"""


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a worker that has ended."""

    code: int
    out: str
    err: str


def start(size: int, body: str, *arguments: str, **environ: str) -> list[subprocess.Popen[str]]:
    """Start workers as torchrun would. Each executes `HEAD` and then ``body``."""
    job = {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    host = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", HEAD + textwrap.dedent(body), *arguments]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **job, **host, **environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def finish(workers: list[subprocess.Popen[str]], timeout: float = 60) -> list[Ended]:
    """Wait for all workers, and kill them after ``timeout`` seconds."""
    with limited(workers, timeout):
        outputs = [worker.communicate() for worker in workers]
    return [Ended(worker.returncode, *output) for worker, output in zip(workers, outputs, strict=True)]


@contextmanager
def limited(workers: list[subprocess.Popen[str]], seconds: float) -> Iterator[None]:
    """Kill the workers at the end of the block, or after some seconds, in which case they first print tracebacks."""

    def end() -> None:
        for worker in workers:
            worker.send_signal(signal.SIGUSR1)
        time.sleep(1)
        for worker in workers:
            worker.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for worker in workers:
            worker.kill()
            worker.wait()


def run(size: int, body: str, *arguments: str, **environ: str) -> list[str]:
    """Run workers, check that all succeed, and return the output of each."""
    ended = finish(start(size, body, *arguments, **environ))
    assert [one.code for one in ended] == [0] * size, "\n".join(one.err for one in ended)
    return [one.out for one in ended]
