"""Entries of the audit log for downloads, at most one per hour for each person and checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

from starlette.requests import Request

from det_server._accounts import record_action
from det_server._site import principal_of

ENTRY_SECONDS = 3600.0
"""Seconds after an entry in which further files of the same checkpoint for the same person add none."""


class DownloadLog:
    """Recent downloads of checkpoints, of which the audit log has an entry.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = WeakValueDictionary[tuple[str, str], threading.Lock]()
        """Locks of those whose entry is being written."""
        self._recorded: dict[tuple[str, str], float] = {}
        """Times of the entries by person and checkpoint, oldest first."""

    def record(self, request: Request, uuid: str) -> None:
        """Record the download of a file of a checkpoint, unless there is a recent entry.

        Args:
            request: the download, whose principal is the person.
            uuid: id of the checkpoint.
        """
        key = (principal_of(request).name, uuid)
        with self._lock:
            writing = self._writing.setdefault(key, threading.Lock())
        with writing:  # programs ask for several files at once, and none is sent before the entry is written
            if not self._has_recent(key):
                record_action(request, "download", f"checkpoint {uuid}")
                with self._lock:
                    self._recorded[key] = self._clock()

    def _has_recent(self, key: tuple[str, str]) -> bool:
        with self._lock:
            while self._recorded and next(iter(self._recorded.values())) <= self._clock() - ENTRY_SECONDS:
                del self._recorded[next(iter(self._recorded))]
            return key in self._recorded
