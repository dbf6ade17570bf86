"""Helpers for tests that wait for other processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 60) -> T:
    """Call ``condition`` every 10 ms, and return its first true result.

    Raises:
        AssertionError: there was none within ``seconds`` seconds.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return result


def interrupt_once(condition: Callable[[], object], *, number: int = signal.SIGINT) -> None:
    """Send this process a signal as soon as ``condition`` holds, from another thread."""

    def interrupt() -> None:
        wait_for(condition)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
