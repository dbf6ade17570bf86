"""Limit on what a power cut takes from a SQLite database in WAL mode."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

INTERVAL = 5.0
"""Maximum number of seconds until a commit is durable, while its process is alive."""


class WalSync:
    """Syncs a write-ahead log to the medium some seconds after commits that did not do so themselves."""

    def __init__(self, database: Path) -> None:
        self._wal = f"{database}-wal"
        self._timer: threading.Timer | None = None

    def schedule(self) -> None:
        """Make everything committed so far durable within `INTERVAL` seconds."""
        if self._timer is None or not self._timer.is_alive():  # a forked child has the object, but not the thread
            self._timer = threading.Timer(INTERVAL, self._sync)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Make everything committed so far durable."""
        if self._timer is not None:
            self._timer.cancel()
            self._sync()

    def _sync(self) -> None:
        self._timer = None  # first: later commits need another timer
        # SQLite holds no locks on this file that closing a descriptor could drop.
        with suppress(FileNotFoundError):  # its last user merged it into the database
            log = os.open(self._wal, os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)
