"""Output of workers, passed on with the rank that printed each line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, BinaryIO

from det_core.launch._output_lines import LineDecoder

_CHUNK = 1 << 16
_TICK = 0.02
_ORPHAN_SECONDS = 1.0
"""Seconds to wait for the end of the output of workers that have ended, because orphans may keep their streams open."""


class OutputRelay:
    """Threads that pass on each line that workers print, on the same stream, after ``[rank=N]`` with the worker's rank.

    Nothing is stored: workers that print more than is read have to wait. If nobody reads the output any more, it is
    dropped, so that workers can still save a checkpoint.
    """

    def __init__(self) -> None:
        self._streams: list[_Stream] = []

    def add_worker(self, worker: subprocess.Popen[bytes], rank: int) -> None:
        """Pass on the output of a worker whose stdout and stderr are pipes."""
        assert worker.stdout and worker.stderr
        for source, target in ((worker.stdout, sys.stdout.buffer), (worker.stderr, sys.stderr.buffer)):
            self._streams.append(_Stream(rank, source, target))
            self._streams[-1].start()

    def close(self) -> None:
        """Pass on the rest of the output, also to a slow reader. Must be called after the end of the workers."""
        left = _ORPHAN_SECONDS
        while left > 0 and any(stream.is_alive() for stream in self._streams):
            time.sleep(_TICK)
            if not any(stream.is_writing for stream in self._streams):
                left -= _TICK


class _Stream(threading.Thread):
    """Thread that passes on one stream of a worker.

    Args:
        rank: rank of the worker.
        source: stream of the worker.
        target: stream of this process.
    """

    def __init__(self, rank: int, source: IO[bytes], target: BinaryIO) -> None:
        super().__init__(daemon=True)
        self.is_writing = False
        """Whether the reader of this process has not yet taken what the worker has printed."""
        self._rank = rank
        self._source = source
        self._target = target

    def run(self) -> None:
        """Pass on all lines of the stream."""
        lines, data = LineDecoder(), b"?"
        with self._source:
            while data:
                data = os.read(self._source.fileno(), _CHUNK)
                self.is_writing = True
                with suppress(OSError):  # nobody reads it
                    self._target.writelines(f"[rank={self._rank}] {text}\n".encode() for _, text in lines.feed(data))
                    self._target.flush()
                self.is_writing = False
