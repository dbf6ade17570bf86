"""What tests of other processes wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 60) -> T:
    """The first true result of `condition`, asked every 10 ms."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return result


def is_alive(pid: int) -> bool:
    """False for a zombie, too."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
