"""Lines of output on their way into the record."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

from typing_extensions import Self

from det_core.interfaces.tracking import LogLine, Run, TrackingStore

_EVERY = 0.5
_MOST_LINES = 1000
_MOST_CHARACTERS = 1 << 20
_TRACEBACK = "Traceback (most recent call last)"
_CONSEQUENCE = "PeerLost: "


class LogWriter:
    """Background writer for the output of one run. Lines come from any thread and are stored in batches.

    Enter it to start the thread that writes. A thread that adds lines faster than they can be stored blocks, and
    so does the worker whose full pipe that thread reads.
    """

    def __init__(self, store: TrackingStore, run: Run) -> None:
        self._store = store
        self._run = run
        self._lines: list[LogLine] = []
        self._characters = 0
        self._changed = threading.Condition()
        self._closing = False
        self._failure: Exception | None = None
        self._last_words = ""
        self._in_traceback: set[int] = set()
        self._raised: dict[int, str] = {}
        """The latest exception of each rank, in the order of their first ones."""
        self._thread = threading.Thread(target=self._write, name="det-log-writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if kind is None:
            self.check()

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
        with self._changed:
            if stdtype == "stderr":
                self._note_error(rank, text)
            self._changed.wait_for(lambda: self._has_room or self._is_over)
            if not self._is_over:
                self._lines.append(line)
                self._characters += len(text)
                self._changed.notify_all()

    def check(self) -> None:
        """Raise the error that prevented lines from being stored, if there was one."""
        if self._failure:
            raise self._failure

    @property
    def _has_room(self) -> bool:
        return len(self._lines) < _MOST_LINES and self._characters < _MOST_CHARACTERS

    @property
    def _is_over(self) -> bool:
        return self._closing or self._failure is not None

    def _write(self) -> None:
        while lines := self._take():
            try:
                self._store.add_logs(lines)
            except Exception as error:  # noqa: BLE001  (raised in the thread that watches the run)
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _take(self) -> list[LogLine]:
        """Wait for lines, then briefly for more. Return none if no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing)
            self._changed.wait_for(lambda: self._closing or not self._has_room, _EVERY)
            lines, self._lines, self._characters = self._lines, [], 0
            self._changed.notify_all()
            return lines

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
