"""Lines of the server's log, whose number and contents clients influence."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from det_core.tracking.printable import printable_text

_MOST = 10
"""Maximum number of lines of one statement in `_WINDOW`."""
_WINDOW = 10.0
"""Seconds after the first line in which the others are counted."""


class LineFilter(logging.Filter):
    """Filter that limits the number of lines, which would fill the disk, and removes escape sequences.

    Each statement that logs counts apart, so that the lines of one do not hide those of others.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line. The first one after a time with too many has their number."""
        statement, now = (record.pathname, record.lineno), self._clock()
        begun, number = self._lines.get(statement, (now, 0))
        record.msg, record.args = printable_text(record.getMessage()), None
        if now - begun >= _WINDOW:
            if number > _MOST:
                record.msg = f"{record.msg} (and {number - _MOST} like it before)"
            begun, number = now, 0
        self._lines[statement] = begun, number + 1
        return number < _MOST
