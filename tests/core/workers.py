"""Workers of one trial as real processes, which are forks of a process that has imported det_core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Workers:
    """Starter of workers.

    Attributes:
        forked: arguments of Python that make its process a fork.
        directory: directory for the scripts of the workers.
    """

    forked: Sequence[str]
    directory: Path

    def start(self, size: int, body: str, *arguments: str, **environ: str) -> list[subprocess.Popen[str]]:
        """Start workers as torchrun would. Each executes `HEAD` and then ``body``."""
        job = {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
        host = {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
        script = self.directory / f"{job['TORCHELASTIC_RUN_ID']}.py"
        script.write_text(HEAD + textwrap.dedent(body))
        return [
            subprocess.Popen(
                [sys.executable, *self.forked, str(script), *arguments],
                env={**os.environ, **job, **host, **environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(size)
        ]

    def run(self, size: int, body: str, *arguments: str, **environ: str) -> list[str]:
        """Run workers, check that all succeed, and return the output of each."""
        ended = finish(self.start(size, body, *arguments, **environ))
        assert [one.code for one in ended] == [0] * size, "\n".join(one.err for one in ended)
        return [one.out for one in ended]


def finish(workers: list[subprocess.Popen[str]], timeout: float = 120) -> list[Ended]:
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
