"""Entries of the audit log for downloads, at most one per hour for each person and checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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
        self._recorded: dict[tuple[str, str], float] = {}
        """Times of the entries by person and checkpoint, oldest first."""

    def record(self, request: Request, uuid: str) -> None:
        """Record the download of a file of a checkpoint, unless there is a recent entry.

        Args:
            request: the download, whose principal is the person.
            uuid: id of the checkpoint.
        """
        key, now = (principal_of(request).name, uuid), self._clock()
        with self._lock:  # also while the entry is written, because programs ask for several files at once
            while self._recorded and next(iter(self._recorded.values())) <= now - ENTRY_SECONDS:
                del self._recorded[next(iter(self._recorded))]
            if key not in self._recorded:
                record_action(request, "download", f"checkpoint {uuid}")
                self._recorded[key] = now
