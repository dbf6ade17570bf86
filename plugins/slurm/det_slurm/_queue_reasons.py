"""Reasons for which jobs wait, for displays only."""

from __future__ import annotations

import threading
import time

from det_core.errors import LaunchError
from det_slurm._slurm_programs import read_reasons

_FIRST_SECONDS = 1.0
_LEAST_SECONDS = 10.0
"""Seconds between two calls of ``squeue`` if there are new jobs. Each call reads the reasons of all jobs that wait."""
_SECONDS = 60.0
"""Seconds between two calls without new jobs. The users of a cluster must not burden its controller."""


class QueueReasons:
    """Reasons for which jobs of this process wait, which a thread reads in the background while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._jobs: dict[str, str] = {}
        self._thread: threading.Thread | None = None

    def add_job(self, job: str) -> None:
        """Add a job that waits."""
        with self._lock:
            self._jobs.setdefault(job, "")
            self._changed.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll, name="det-squeue", daemon=True)
                self._thread.start()

    def remove_job(self, job: str) -> None:
        """Remove a job, if it is there."""
        with self._lock:
            self._jobs.pop(job, None)
            self._changed.set()

    def find_reason(self, job: str) -> str:
        """Return the reason of a job, or "" if it is not known yet."""
        return self._jobs.get(job, "")

    def _poll(self) -> None:
        polled_at = time.monotonic() + _FIRST_SECONDS - _LEAST_SECONDS
        known: set[str] = set()
        while True:
            with self._lock:
                jobs = set(self._jobs)
                if not jobs:
                    self._thread = None
                    return
            due_at = polled_at + (_LEAST_SECONDS if jobs - known else _SECONDS)
            if (left := due_at - time.monotonic()) > 0:
                self._changed.wait(left)
                self._changed.clear()
                continue
            known, polled_at = jobs, time.monotonic()
            try:
                reasons = read_reasons(known)
            except LaunchError as error:
                reasons = dict.fromkeys(known, str(error))
            with self._lock:
                self._jobs.update({job: reason for job, reason in reasons.items() if job in self._jobs})
