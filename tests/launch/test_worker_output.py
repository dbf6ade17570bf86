"""Output of workers that a launcher passes on."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from det_core.launch import worker_output
from det_core.launch.worker_output import OutputRelay


def run_worker(script: str, stdout: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a shell as worker 3 of a launcher with this stdout, and return the exit code."""
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=stdout))
    with closing(OutputRelay()) as relay:
        worker = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        relay.add_worker(worker, 3)
        return worker.wait(60)


def test_lines_have_the_rank_of_their_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as found:
        with os.fdopen(theirs, "wb") as output:
            assert run_worker("echo one; printf two", output, monkeypatch) == 0
        assert found.read() == b"[rank=3] one\n[rank=3] two\n"


def test_a_slow_reader_gets_the_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the log of a runner whose database is locked."""
    monkeypatch.setattr(worker_output, "_ORPHAN_SECONDS", 0.1)
    ours, theirs = os.pipe()

    def run() -> int:
        with os.fdopen(theirs, "wb") as output:
            return run_worker("seq 20000", output, monkeypatch)

    with os.fdopen(ours, "rb") as found, ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        wait([running], 0.5)
        assert found.read().endswith(b"\n[rank=3] 20000\n")
        assert running.result(60) == 0


def test_workers_do_not_wait_for_a_reader_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        output = os.fdopen(theirs, "wb", closefd=False)
        assert run_worker("seq 100000", output, monkeypatch) == 0
    finally:
        os.close(theirs)
