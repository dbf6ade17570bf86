"""Which signals came, while somebody else handles them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def noted() -> Iterator[Callable[[], list[int]]]:
    """Yield a function that returns the numbers of all SIGINTs and SIGTERMs since the block began.

    The runner turns them into requests, but the exit code and the view need to know which they were.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    seen: list[int] = []

    def look() -> list[int]:
        try:
            arrived = os.read(read, 1024)
        except BlockingIOError:
            arrived = b""
        seen.extend(number for number in arrived if number in (signal.SIGINT, signal.SIGTERM))
        return seen

    try:
        yield look
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
