"""Real processes that stand for the workers of one trial."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from dataclasses import dataclass

HEAD = """
import os, signal, sys, time
from pathlib import Path
import det_core as det
from det_core import core
distributed = core.DistributedContext.from_torch_distributed()
rank, size = distributed.rank, distributed.size
"""


@dataclass(frozen=True)
class Ended:
    """How a worker ended."""

    code: int
    out: str
    err: str


def start(size: int, body: str, *arguments: str, **environ: str) -> list[subprocess.Popen[str]]:
    """Start workers as torchrun would. ``body`` has `HEAD` before it."""
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
    """Wait for all; none is left behind."""
    try:
        outputs = [worker.communicate(timeout=timeout) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return [Ended(worker.returncode, *output) for worker, output in zip(workers, outputs, strict=True)]


def run(size: int, body: str, *arguments: str, **environ: str) -> list[str]:
    """What each worker printed; all must succeed."""
    ended = finish(start(size, body, *arguments, **environ))
    assert [one.code for one in ended] == [0] * size, "\n".join(one.err for one in ended)
    return [one.out for one in ended]
