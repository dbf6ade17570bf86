"""Periodic sync of a SQLite database in WAL mode, which limits the loss from a power cut."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

_log = logging.getLogger("det.tracking")

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
        self._has_failed = False

    def schedule(self) -> None:
        """Make everything committed so far durable within `INTERVAL` seconds, if the disk allows it."""
        timer = self._timer  # which the thread of the timer sets to None at any time
        if timer is None or not timer.is_alive():  # a forked child inherits the object without its thread
            timer = self._timer = threading.Timer(INTERVAL, self._sync)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # there is no free thread
                self._sync()

    def close(self) -> None:
        """Make everything committed so far durable, if the disk allows it."""
        if timer := self._timer:
            timer.cancel()
            self._sync()

    def _sync(self) -> None:
        self._timer = None  # first, because later commits need another timer
        try:
            # SQLite holds no locks on this file that closing a descriptor could drop.
            log = os.open(self._wal, os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)
        except FileNotFoundError:
            pass  # the last connection merged it into the database
        except OSError as error:  # what was committed is there, and a later durable transaction fails if this persists
            if not self._has_failed:
                _log.warning("%s cannot be synced: %s; a power cut may undo what was recorded last", self._wal, error)
            self._has_failed = True
