"""Threads that pass on the lines of output streams."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO

from det_core.launch.output_lines import LineDecoder

_CHUNK = 1 << 16
_TICK = 0.02
_SLOW_SECONDS = 120.0
"""Seconds to wait for a slow receiver, such as the log of a runner whose database is locked."""


class StreamThread(threading.Thread):
    """Thread that passes on the lines of a stream, and closes the stream at its end.

    Args:
        name: name of the thread.
        stream: the stream.
        pass_on: function that takes lines, as pairs of rank and text. It may block.
    """

    def __init__(
        self, name: str, stream: IO[bytes], pass_on: Callable[[Iterable[tuple[int | None, str]]], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.is_busy = False
        """Whether lines that were read have not been passed on yet."""
        self._stream = stream
        self._pass_on = pass_on

    def run(self) -> None:
        """Pass on all lines."""
        lines, data = LineDecoder(), b"?"
        with self._stream:
            while data:
                data = os.read(self._stream.fileno(), _CHUNK)
                self.is_busy = True
                self._pass_on(lines.feed(data))
                self.is_busy = False

    def discard(self) -> None:
        """Close the stream of a thread that was not started."""
        if self.ident is None:
            self._stream.close()


def end_streams(threads: Sequence[StreamThread], seconds: float) -> None:
    """Wait until all lines are passed on, also to a slow receiver. Threads that were not started close their streams.

    Args:
        threads: the threads.
        seconds: time limit for streams that do not end, because other processes keep them.
    """
    for thread in threads:
        thread.discard()
    now = time.monotonic()
    end, give_up_at = now + seconds, now + _SLOW_SECONDS
    while (alive := [thread for thread in threads if thread.is_alive()]) and now < min(end, give_up_at):
        alive[0].join(_TICK)
        before, now = now, time.monotonic()
        if any(thread.is_busy for thread in alive):
            end += now - before
