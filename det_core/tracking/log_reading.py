"""Reading of logs in parts, so that no statement takes long, however many lines a filter excludes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from det_core.errors import CallTooLarge
from det_core.interfaces.records import LogLine
from det_core.interfaces.tracking import TrackingStore

__all__ = ["LogFilter", "LogPart", "log_parts"]

_WINDOW = 100_000
"""Number of ids among which a statement looks for lines that match."""
_LEAST_WINDOW = 100
"""Number of ids from which a statement that takes too long is not made shorter."""


@dataclass(frozen=True, kw_only=True)
class LogFilter:
    """Selection of log lines. Its fields are arguments of `TrackingStore.logs`."""

    ranks: Collection[int] = ()
    """Ranks of workers; empty for all lines, also those of the runner."""
    stdtype: str = ""
    """Stream, or "" for all."""
    level: str = ""
    """Least severe level, or "" for all."""
    search: str = ""
    """Text that the lines contain, ignoring case."""
    earliest: datetime | None = None
    """Time after which they were received."""
    latest: datetime | None = None
    """Time before which they were received."""


EVERY_LINE = LogFilter()
"""Filter that excludes no line."""


@dataclass(frozen=True)
class LogPart:
    """Some lines of a log in the order of their ids, and what was read to find them.

    Args:
        lines: the lines that match.
        edge: id up to which everything was read, inclusive: upwards, or downwards if the last lines are wanted.
    """

    lines: list[LogLine]
    edge: int


def log_parts(
    store: TrackingStore,
    trial_id: int,
    chosen: LogFilter,
    *,
    after: int = 0,
    before: int | None = None,
    newest: bool = False,
    at_once: int,
) -> Iterator[LogPart]:
    """Yield the lines of a trial that match a filter in parts, of which some may be empty.

    Args:
        store: the tracking store.
        trial_id: the trial.
        chosen: the filter.
        after: only lines with a greater id.
        before: only lines with a smaller id.
        newest: whether the parts go from the last line to the first one.
        at_once: maximum number of lines of a part.

    Raises:
        CallTooLarge: few lines take too long, because they are long.
    """
    if before is None:
        last = store.logs(trial_id, after=after, limit=1, newest=True)
        before = last[0].id + 1 if last else after + 1
    end = before
    window = _WINDOW if chosen != EVERY_LINE else end
    while after + 1 < end:
        low, high = (max(after, end - 1 - window), end) if newest else (after, min(after + 1 + window, end))
        try:
            lines = store.logs(trial_id, after=low, before=high, limit=at_once, newest=newest, **vars(chosen))
        except CallTooLarge:
            if window <= _LEAST_WINDOW:
                raise
            window //= 8
            continue
        is_full = len(lines) == at_once
        if newest:
            end = lines[0].id if is_full else low + 1
        else:
            after = lines[-1].id if is_full else high - 1
        yield LogPart(lines, end if newest else after)
        if not lines:  # others may have written what is between
            found = store.logs(trial_id, after=after, before=end, limit=1, newest=newest)
            if not found:
                return
            after, end = (after, found[0].id + 1) if newest else (found[0].id - 1, end)
