"""Background writer for the output of workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from typing_extensions import Self

from det_core.core.failure_notes import choose_cause
from det_core.interfaces.records import LogLine, Run
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._log_levels import level_of_line

_EVERY = 0.5
"""Seconds between two writes to the tracking store."""
_MOST_LINES = 1000
"""Maximum number of waiting lines, beyond which `LogWriter.add` blocks."""
_MOST_CHARACTERS = 1 << 20
"""Maximum number of waiting characters, beyond which `LogWriter.add` blocks."""
_TRACEBACK = "Traceback (most recent call last)"


class LogWriter:
    """Background writer for the output of one run. Lines may come from any thread and are stored in batches.

    Entering the context starts the writer thread. A thread that adds lines faster than they can be stored blocks, and
    so does the worker whose output pipe that thread reads.

    Args:
        store: the tracking store.
        run: the run that prints the lines.
        recorded: function called in the writer thread with lines that have been stored.
    """

    def __init__(
        self, store: TrackingStore, run: Run, recorded: Callable[[Sequence[LogLine]], None] = lambda _: None
    ) -> None:
        self._store = store
        self._run = run
        self._recorded = recorded
        self._lines: list[LogLine] = []
        self._characters = 0
        self._changed = threading.Condition()
        self._closing = False
        self._failure: Exception | None = None
        self._last_words = ""
        self._in_traceback: set[int] = set()
        self._raised: dict[int, str] = {}
        """Latest exception of each rank, in the order in which the ranks first raised one."""
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
        """Reason of the failure according to stderr, or "" if stderr is empty.

        If ranks raised exceptions, it is that of the first rank, because the failure of the other ranks and of their
        launcher only follows from it. Otherwise it is the last line.
        """
        return choose_cause(self._raised.values()) or self._last_words

    def add(self, rank: int | None, stdtype: str, text: str) -> None:
        """Add a line. Block while too many lines wait to be stored.

        Args:
            rank: the rank that printed the line, or None if unknown.
            stdtype: ``"stdout"``, ``"stderr"``, or ``"det"`` for messages of det itself.
            text: the line without its newline.
        """
        line = make_log_line(self._run, rank, stdtype, text)
        with self._changed:
            if stdtype == "stderr":
                if rank in self._in_traceback:
                    line = replace(line, level="ERROR")
                self._note_error(rank, text)
            self._changed.wait_for(lambda: self._has_room or self._is_over)
            if not self._is_over:
                self._lines.append(line)
                self._characters += len(text)
                self._changed.notify_all()

    def check(self) -> None:
        """Raise the error that prevented lines from being stored, if any."""
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
            except Exception as error:  # noqa: BLE001  (check raises it in the thread that watches the run)
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            self._recorded(lines)

    def _take(self) -> list[LogLine]:
        """Wait for lines, then briefly for more, and return them. Return an empty list at the end."""
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


def make_log_line(run: Run, rank: int | None, stdtype: str, text: str) -> LogLine:
    """Return a line of the log of a run, with the present time. The arguments are those of `LogWriter.add`."""
    return LogLine(
        trial_id=run.trial_id,
        run_id=run.run_id,
        rank=rank or 0,
        stdtype=stdtype,
        log=text,
        time=datetime.now(timezone.utc),
        level=level_of_line(text),
    )
