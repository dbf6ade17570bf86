"""Changes of the tracking store, which are found at the ends of its tables.

A cursor has an id per table up to which every row was returned. Transactions of PostgreSQL may commit in another order
than that of their ids. While some are in progress, a cursor therefore also has marks: the last ids that were returned,
and the number of the next transaction. The marks replace the ids once all transactions before that one have ended.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, Integer, bindparam, cast, func, literal_column, null, select, union_all

from det_core.interfaces.records import MAX_STEPS, Changes
from det_core.tracking._rows import StoreMixin
from det_core.tracking._schema import checkpoints, experiments, logs, metrics, system_metrics, trials

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Column, CompoundSelect, Row

_TABLES: Sequence[tuple[str, Column[int]]] = (
    ("metrics", metrics.c.trial_id),
    ("system_metrics", system_metrics.c.trial_id),
    ("checkpoints", checkpoints.c.trial_id),
    ("logs", logs.c.trial_id),
    ("experiments", trials.c.experiment_id),
    ("experiments", experiments.c.id),
)
"""Field of `Changes` and the column with its values, for each table."""
_ROWS = 10_000
"""Maximum number of rows of a table that a call reads. While transactions are in progress, a cursor moves on by so many
rows only once those that began before it have ended."""
_OVERLAP = 1000
"""Number of ids before the last one that transactions in progress may use when the first cursor is created."""
_FORMAT = re.compile(r"[0-9]{1,19}(?:,[0-9]{1,19}){5}(?:;[0-9]{1,19}(?:,[0-9]{1,19}){6})?")


class _Cursor(NamedTuple):
    ids: Sequence[int]
    """Id of each table up to which all rows were returned."""
    marks: Sequence[int] = ()
    """Later ids up to which rows were returned, except those of transactions in progress. Empty if there are none."""
    next_transaction: int = 0
    """Number of the first transaction that began after the marks were set."""

    def __str__(self) -> str:
        marks = (*self.marks, self.next_transaction) if self.marks else ()
        return ";".join(",".join(map(str, numbers)) for numbers in (self.ids, marks) if numbers)

    def advance(self, ends: Sequence[int], oldest: int, following: int) -> _Cursor:
        """Return the cursor after all visible rows up to ``ends`` were returned.

        Args:
            ends: last returned id of each table.
            oldest: number of the oldest transaction in progress, or ``following`` if there is none.
            following: number of the next transaction.
        """
        if oldest == following:
            return _Cursor(ends)
        if not self.marks:
            return _Cursor(self.ids, ends, following)
        if oldest < self.next_transaction:
            return self
        complete = map(min, self.marks, ends)  # a call that reads only a part may end before the marks
        return _Cursor(list(map(max, self.ids, complete)), ends, following)


class ChangesMixin(StoreMixin):
    """Methods of the tracking store that return what was added."""

    def changes(self, after: str = "") -> Changes:
        cursor = _parse_cursor(after) if after else None
        ids = cursor.ids if cursor else [MAX_STEPS] * len(_TABLES)  # after all rows
        with self._database.read() as connection:
            oldest, following = self._database.transactions(connection)
            rows = connection.execute(_tails, {f"after_{table}": row for table, row in enumerate(ids)}).all()
        ends = [_end(row for row in rows if row.table == table) for table in range(len(_TABLES))]
        if cursor is None:
            begin = _Cursor([max(0, end - _OVERLAP) for end in ends])
            return Changes(cursor=str(begin.advance(ends, oldest, following)))
        found: dict[str, set[int]] = {name: set() for name, _ in _TABLES}
        for row in rows:
            if row.subject is not None:
                found[_TABLES[row.table][0]].add(row.subject)
        return Changes(
            cursor=str(cursor.advance(ends, oldest, following)),
            **{name: sorted(subjects) for name, subjects in found.items()},
        )


def _end(rows: Iterable[Row[Any]]) -> int:
    """Return the id of the last row of a table if all were read, else that of the last row that was read."""
    last, read, count = 0, 0, 0
    for row in rows:
        if row.subject is None:
            last = row.last or 0
        else:
            read, count = max(read, row.last), count + row.rows
    return read if count >= _ROWS else last


def _select_tails(limit: int = _ROWS) -> CompoundSelect[Any]:
    """Select the new rows of each table by subject, and its last id with no subject."""
    parts: list[Any] = []
    for number, (_, subject) in enumerate(_TABLES):
        table, row = literal_column(str(number), Integer).label("table"), subject.table.c.id
        new = select(subject.label("subject"), row.label("row")).where(row > bindparam(f"after_{number}"))
        read = new.order_by(row).limit(limit).subquery().c
        by_subject = select(table, read.subject, func.max(read.row).label("last"), func.count().label("rows"))
        parts += (
            by_subject.group_by(read.subject),
            select(table, cast(null(), BigInteger), func.max(row), literal_column("0")),
        )
    return union_all(*parts)


_tails = _select_tails()


def _parse_cursor(text: str) -> _Cursor:
    if not _FORMAT.fullmatch(text):
        raise ValueError(f"{text!r:.100} is not a cursor of changes; expected one that the store returned")
    ids, *marks = ([int(number) for number in part.split(",")] for part in text.split(";"))
    if max(map(max, (ids, *marks))) > MAX_STEPS:
        raise ValueError(f"{text!r:.300} is not a cursor of changes; numbers are at most {MAX_STEPS}")
    return _Cursor(ids, marks[0][:-1], marks[0][-1]) if marks else _Cursor(ids)
