"""Lines of output on their way into the record."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone

from det_core.interfaces.tracking import LogLine, Run, TrackingStore

_EVERY = 0.5
_TRACEBACK = "Traceback (most recent call last)"
_CONSEQUENCE = "PeerLost: "


class LogWriter:
    """Collects the lines of one run from any thread; `flush` writes them in batches."""

    def __init__(self, store: TrackingStore, run: Run) -> None:
        self._store = store
        self._run = run
        self._lines: list[LogLine] = []
        self._lock = threading.Lock()
        self._flush_at = 0.0
        self._last_words = ""
        self._in_traceback: set[int] = set()
        self._raised: dict[int, str] = {}
        """The latest exception of each rank, in the order of their first ones."""

    @property
    def error(self) -> str:
        """Why the run failed, as far as stderr tells; may be empty.

        Where several ranks raised, it is the first of them: the others, and what started them, only fail because
        that one did. Else it is the last line.
        """
        causes = (raised for raised in self._raised.values() if _CONSEQUENCE not in raised)
        return next(causes, self._last_words)

    def add(self, rank: int | None, stdtype: str, text: str) -> None:
        line = LogLine(
            trial_id=self._run.trial_id,
            run_id=self._run.run_id,
            rank=rank or 0,
            stdtype=stdtype,
            log=text,
            time=datetime.now(timezone.utc),
        )
        with self._lock:
            self._lines.append(line)
            if stdtype == "stderr":
                self._note_error(rank, text)

    def flush(self, *, now: bool = False) -> None:
        """Write what has gathered, at most twice a second unless ``now``."""
        if not now and time.monotonic() < self._flush_at:
            return
        self._flush_at = time.monotonic() + _EVERY
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            self._store.add_logs(lines)

    def _note_error(self, rank: int | None, text: str) -> None:
        if any(map(str.isalnum, text)):
            self._last_words = text.strip()
        if rank is None:
            return
        if text.startswith(_TRACEBACK):
            self._in_traceback.add(rank)
        elif rank in self._in_traceback and text.strip() and not text[0].isspace():
            self._in_traceback.remove(rank)
            self._raised[rank] = text.strip()
