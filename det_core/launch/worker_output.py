"""Output of workers, passed on with the rank that printed each line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import BinaryIO

from det_core.launch._stream_threads import StreamThread, end_streams
from det_core.launch.worker_processes import Worker

_ORPHAN_SECONDS = 1.0
"""Seconds to wait for the end of the output of workers that have ended, because orphans may keep their streams open."""


class OutputRelay:
    """Threads that pass on each line that workers print, on the same stream, after ``[rank=N]`` with the worker's rank.

    Nothing is stored: workers that print more than is read have to wait. If nobody reads the output any more, it is
    dropped, so that workers can still save a checkpoint.
    """

    def __init__(self) -> None:
        self._threads: list[StreamThread] = []

    def add_worker(self, worker: Worker, rank: int) -> None:
        """Pass on the output of a worker whose stdout and stderr are pipes."""
        assert worker.stdout and worker.stderr
        for source, target in ((worker.stdout, sys.stdout.buffer), (worker.stderr, sys.stderr.buffer)):
            thread = StreamThread(f"det-rank-{rank}", source, partial(_write_lines, target, rank))
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Pass on the rest of the output, also to a slow reader. Must be called after the end of the workers."""
        end_streams(self._threads, _ORPHAN_SECONDS)


def _write_lines(target: BinaryIO, rank: int, lines: Iterable[tuple[int | None, str]]) -> None:
    with suppress(OSError):  # nobody reads it
        target.writelines(f"[rank={rank}] {text}\n".encode() for _, text in lines)
        target.flush()
