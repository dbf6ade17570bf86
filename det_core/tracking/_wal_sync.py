"""Periodic sync of a SQLite database in WAL mode, which limits the loss from a power cut."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

INTERVAL = 5.0
"""Maximum number of seconds until a commit is durable, provided that its process is alive."""


class WalSync:
    """Background sync of a write-ahead log, some seconds after commits that were not durable themselves.

    Args:
        database: path of the database.
    """

    def __init__(self, database: Path) -> None:
        self._wal = f"{database}-wal"
        self._timer: threading.Timer | None = None

    def schedule(self) -> None:
        """Make everything committed so far durable within `INTERVAL` seconds."""
        if self._timer is None or not self._timer.is_alive():  # a forked child inherits the object without its thread
            self._timer = threading.Timer(INTERVAL, self._sync)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Make everything committed so far durable."""
        if self._timer is not None:
            self._timer.cancel()
            self._sync()

    def _sync(self) -> None:
        self._timer = None  # first, because later commits need another timer
        # SQLite holds no locks on this file that closing a descriptor could drop.
        with suppress(FileNotFoundError):  # the last connection merged it into the database
            log = os.open(self._wal, os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)
