"""Output of workers, passed on with the rank that printed each line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO

from det_core.launch._output_lines import LineDecoder

_CHUNK = 1 << 16
_ORPHAN_SECONDS = 1.0
"""Seconds to wait for the end of the output of workers that have ended, because orphans may keep their streams open."""


class OutputRelay:
    """Threads that pass on each line that workers print, on the same stream, after ``[rank=N]`` with the worker's rank.

    Nothing is stored: workers that print more than is read have to wait. If nobody reads the output any more, it is
    dropped, so that workers can still save a checkpoint.
    """

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def add_worker(self, worker: subprocess.Popen[bytes], rank: int) -> None:
        """Pass on the output of a worker whose stdout and stderr are pipes."""
        for source, target in ((worker.stdout, sys.stdout.buffer), (worker.stderr, sys.stderr.buffer)):
            thread = threading.Thread(target=_relay, args=(rank, source, target), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Pass on the rest of the output. Must be called after the end of the workers."""
        deadline = time.monotonic() + _ORPHAN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _relay(rank: int, source: BinaryIO, target: BinaryIO) -> None:
    lines, data = LineDecoder(), b"?"
    with source:
        while data:
            data = os.read(source.fileno(), _CHUNK)
            with suppress(OSError):  # nobody reads it
                target.writelines(f"[rank={rank}] {text}\n".encode() for _, text in lines.feed(data))
                target.flush()
