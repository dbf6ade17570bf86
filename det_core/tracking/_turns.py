"""Turns of the threads of a process, in the order in which they ask."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turns:
    """Number of turns that threads take. With semaphores, a thread that never pauses would leave none to others.

    Args:
        count: maximum number of threads that have a turn at the same time.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.RLock()  # a signal handler may ask for a turn, too

    @contextmanager
    def take(self, timeout: float) -> Iterator[None]:
        """Wait for a turn, and have it during the block.

        Args:
            timeout: maximum number of seconds to wait.

        Raises:
            TimeoutError: other threads have had all turns for this time.
        """
        mine = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                mine.set()
            else:
                self._waiting.append(mine)
        try:
            if not mine.wait(timeout):
                raise TimeoutError
            yield
        finally:
            self._leave(mine)

    def _leave(self, mine: threading.Event) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
            elif self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1
