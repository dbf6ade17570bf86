"""Protection of database connections against forks.

SQLite keeps its locks in tables of the process. A child that inherits an open connection would rely on locks that only
its parent holds. It could wait for threads that it does not have, or damage the database. A fork, such as that of a
DataLoader, therefore waits for the transactions of other threads and closes idle connections. The wait is bounded by
the time for which these transactions wait for the database.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

engines: WeakSet[Engine] = WeakSet()
"""Engines whose idle connections are closed before a fork."""


class _Gate:
    """Gate that any number of threads can pass until it is shut."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_shut = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Wait until the gate is open, and stay inside during the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Shut the gate, and wait until no thread is inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)  # another thread may be forking
            self._is_shut = True
            self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        """Let threads pass again."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()


_gate = _Gate()


@contextmanager
def delay_forks() -> Iterator[None]:
    """Delay forks by other threads during the block. Every use of a connection needs such a block."""
    with _gate.passing():
        yield


def _before() -> None:
    _gate.shut()
    for engine in list(engines):
        engine.dispose()


def _in_child() -> None:
    global _gate
    _gate = _Gate()  # the old lock may be held by threads that the child does not have


os.register_at_fork(before=_before, after_in_parent=lambda: _gate.open(), after_in_child=_in_child)
