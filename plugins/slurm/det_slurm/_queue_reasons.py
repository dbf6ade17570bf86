"""Reasons for which jobs wait, for displays only."""

from __future__ import annotations

import threading

from det_core.errors import LaunchError
from det_slurm._slurm_programs import read_reasons

_FIRST_SECONDS = 1.0
_SECONDS = 30.0
"""Seconds between two calls of ``squeue``, each for all jobs that wait. Many users of a cluster must not burden its
controller."""


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
        seconds = _FIRST_SECONDS
        known: set[str] = set()
        while True:
            if self._changed.wait(seconds):
                self._changed.clear()
                seconds = _FIRST_SECONDS if set(self._jobs) - known else _SECONDS
                with self._lock:
                    if not self._jobs:
                        self._thread = None
                        return
                continue
            known, seconds = set(self._jobs), _SECONDS
            try:
                reasons = read_reasons(known) if known else {}
            except LaunchError as error:
                reasons = dict.fromkeys(known, str(error))
            with self._lock:
                self._jobs.update({job: reason for job, reason in reasons.items() if job in self._jobs})
