"""Lines of output on their way into the record."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone

from det_core.interfaces.tracking import LogLine, Run, TrackingStore

_EVERY = 0.5


class LogWriter:
    """Collects the lines of one run from any thread; `flush` writes them in batches."""

    def __init__(self, store: TrackingStore, run: Run) -> None:
        self._store = store
        self._run = run
        self._lines: list[LogLine] = []
        self._lock = threading.Lock()
        self._flush_at = 0.0
        self.last_error = ""
        """The latest line of stderr that was not blank."""

    def add(self, rank: int, stdtype: str, text: str) -> None:
        if stdtype == "stderr" and text.strip():
            self.last_error = text.strip()
        line = LogLine(
            trial_id=self._run.trial_id,
            run_id=self._run.run_id,
            rank=rank,
            stdtype=stdtype,
            log=text,
            time=datetime.now(timezone.utc),
        )
        with self._lock:
            self._lines.append(line)

    def flush(self, *, now: bool = False) -> None:
        """Write what has gathered, at most twice a second unless ``now``."""
        if not now and time.monotonic() < self._flush_at:
            return
        self._flush_at = time.monotonic() + _EVERY
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            self._store.add_logs(lines)
