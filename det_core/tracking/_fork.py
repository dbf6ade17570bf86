"""No connection is carried across a fork.

SQLite keeps its locks in tables of the process. A child that inherits an open connection believes in locks that only
its parent has: it waits for threads that it does not have, or breaks the database. So a fork (a DataLoader's, say)
waits for the transactions of other threads, at most as long as those wait for the database, and closes what is idle.
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


class _Gate:
    """Lets any number of threads through until it is shut."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_shut = False

    @contextmanager
    def passing(self) -> Iterator[None]:
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
        """Keep others out, and wait until nobody is inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_shut)  # another thread may be forking
            self._is_shut = True
            self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()


_gate = _Gate()


@contextmanager
def passing() -> Iterator[None]:
    """Surrounds everything that touches a connection."""
    with _gate.passing():
        yield


def _before() -> None:
    _gate.shut()
    for engine in list(engines):
        engine.dispose()


def _in_child() -> None:
    global _gate
    _gate = _Gate()  # the old one's lock knows threads that are not here


os.register_at_fork(before=_before, after_in_parent=lambda: _gate.open(), after_in_child=_in_child)
