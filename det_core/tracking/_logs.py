"""Logs of trials, which are the lines that their processes printed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Row, func, select

from det_core.interfaces.records import LOG_LEVELS, LONGEST_LINE, LogLine, require_writable
from det_core.tracking._column_types import make_writable
from det_core.tracking._rows import (
    StoreMixin,
    contains_text,
    get_experiment,
    get_trial,
    id_list,
    lock_trial,
    record_columns,
    require_few_rows,
)
from det_core.tracking._schema import logs, trials
from det_core.tracking.reading_limits import count_read

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime


_OVERHEAD = 300
"""Number of characters that a line counts as in addition to its text, because each takes memory."""
_ROWS = 1000
"""Number of lines that a database without files of its own sends at once."""


class LogsMixin(StoreMixin):
    """Methods of the tracking store for logs."""

    def add_logs(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        require_few_rows(len(lines), "lines")
        rows = [_row(line) for line in lines]
        with self._database.write() as connection:
            # The lock makes ids visible in ascending order, so that a follower misses no line. There is no fence,
            # because the last lines of a replaced run are worth keeping.
            for trial_id in sorted({line.trial_id for line in lines}):
                lock_trial(connection, trial_id)
            connection.execute(logs.insert(), rows)

    def logs(
        self,
        trial_id: int,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
        ranks: Collection[int] = (),
        stdtype: str = "",
        level: str = "",
        search: str = "",
        earliest: datetime | None = None,
        latest: datetime | None = None,
    ) -> list[LogLine]:
        wanted = select(*record_columns(logs, LogLine)).where(logs.c.trial_id == trial_id, logs.c.id > after)
        if before is not None:
            wanted = wanted.where(logs.c.id < before)
        chosen = _conditions(ranks, stdtype, level, search, earliest, latest)
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            order = logs.c.id.desc() if newest else logs.c.id
            query = wanted.where(*chosen).order_by(order).limit(limit).execution_options(yield_per=_ROWS)
            limited = self._database.limit_time(connection) if chosen else nullcontext()
            with limited, connection.execute(query) as rows:
                lines = list(map(_line, rows))
        return lines[::-1] if newest else lines

    def latest_logs(self, experiment_id: int) -> dict[int, int]:
        latest = select(func.max(logs.c.id)).where(logs.c.trial_id == trials.c.id).correlate(trials).scalar_subquery()
        query = select(trials.c.id, latest).where(trials.c.experiment_id == experiment_id).order_by(trials.c.id)
        with self._database.read() as connection:
            get_experiment(connection, experiment_id)
            return {trial_id: line or 0 for trial_id, line in connection.execute(query)}


def _conditions(
    ranks: Collection[int],
    stdtype: str,
    level: str,
    search: str,
    earliest: datetime | None,
    latest: datetime | None,
) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter. The arguments are those of `logs`."""
    for text in (stdtype, search):
        require_writable(text)  # the error of a driver would leave the cursor of the rows open
    conditions: list[ColumnElement[bool]] = []
    if ranks:
        conditions += [logs.c.rank.in_(id_list(None, list(ranks))), logs.c.stdtype != "det"]
    if stdtype:
        conditions.append(logs.c.stdtype == stdtype)
    if level:
        _require_level(level)
        conditions.append(logs.c.level.in_(LOG_LEVELS[LOG_LEVELS.index(level) :]))
    if search:
        conditions.append(contains_text(logs.c.log, search))
    if earliest:
        conditions.append(logs.c.time > earliest)
    if latest:
        conditions.append(logs.c.time < latest)
    return conditions


def _line(row: Row[Any]) -> LogLine:
    count_read(len(row.log) + len(row.stdtype) + len(row.level) + _OVERHEAD)
    return LogLine(**row._mapping)


def _require_level(level: str) -> None:
    if level not in LOG_LEVELS:
        raise ValueError(f"unknown level {level!r:.50}; expected one of {', '.join(LOG_LEVELS)}")


def _row(line: LogLine) -> dict[str, Any]:
    _require_level(line.level)
    texts = {name: make_writable(text[:LONGEST_LINE]) for name, text in (("log", line.log), ("stdtype", line.stdtype))}
    row = {**vars(line), **texts}
    del row["id"]
    return row
