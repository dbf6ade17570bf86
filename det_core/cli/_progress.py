"""How much of a transfer is done, on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from det_core.cli._output import size
from det_core.cli._screen import drawing_on

_EVERY = 0.1
"""Seconds between two states of the line."""
_CLEAR = "\r\x1b[K"


@contextmanager
def transferred(total: int) -> Iterator[Callable[[int], None] | None]:
    """Yield what to call, from any thread, with the bytes just moved: it redraws one line of a terminal's stderr.

    The line is gone on leaving. None where stderr is no terminal.

    Args:
        total: bytes to move.
    """
    if not sys.stderr.isatty():
        yield None
        return
    lock, done, drawn = threading.Lock(), 0, 0.0

    def moved(count: int) -> None:
        nonlocal done, drawn
        with lock:
            done += count
            if time.monotonic() >= drawn + _EVERY:
                drawn = time.monotonic()
                _draw(f"{size(done)} of {size(total)}")

    try:
        yield moved
    finally:
        _draw("")


def _draw(line: str) -> None:
    with suppress(OSError):  # a terminal that is gone must not end the transfer
        print(f"{_CLEAR}{line}", end="", file=drawing_on(sys.stderr), flush=True)
