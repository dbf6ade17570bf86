"""Changes of the tracking store, which are found at the ends of its tables.

A cursor has an id per table up to which every row was returned. Transactions of PostgreSQL may commit in another order
than that of their ids. While some are in progress, a cursor therefore also has marks, which replace the ids once all
transactions that began before the marks were set have ended. Until then, the rows after the ids are read again, and
those that were visible at the last call are left out.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BigInteger, Integer, and_, bindparam, cast, func, literal_column, not_, null, select, union_all

from det_core.interfaces.records import MAX_STEPS, Changes
from det_core.tracking._database import MOST_UNSEEN
from det_core.tracking._rows import StoreMixin
from det_core.tracking._schema import checkpoints, experiments, logs, metrics, system_metrics, trials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Column, ColumnElement, CompoundSelect, Row, Table

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
"""Maximum number of rows of a table that a call returns."""
_TOO_SLOW = "the rows after the cursor take more than {:g} s to read; begin with an empty cursor"
_OVERLAP = 1000
"""Number of ids before the last one that transactions in progress may use when the first cursor is created."""
_NUMBERS = r"[0-9]{1,19}(?:,[0-9]{1,19})"
_FORMAT = re.compile(f"{_NUMBERS}{{5}}(?:;{_NUMBERS}{{6}}(?:;{_NUMBERS}{{6,{5 + MOST_UNSEEN}}})?)?")


class _Cursor(NamedTuple):
    ids: Sequence[int]
    """Id of each table up to which all rows were returned."""
    marks: Sequence[int] = ()
    """Later ids, which replace `ids` once all transactions before `next_transaction` have ended. Empty if there are
    none in progress."""
    next_transaction: int = 0
    """Number of the first transaction that began after the marks were set."""
    seen: Sequence[int] = (0,) * len(_TABLES)
    """Ids up to which the rows of all transactions but `unseen` were returned."""
    unseen: Sequence[int] = (0,)
    """Numbers of transactions that the last call did not see. It saw none from the last number on."""

    def __str__(self) -> str:
        parts = (self.ids, (*self.marks, self.next_transaction), (*self.seen, *self.unseen))
        return ";".join(",".join(map(str, numbers)) for numbers in (parts if self.marks else parts[:1]))

    def advance(self, ends: Sequence[int], unseen: Sequence[int], following: int) -> _Cursor:
        """Return the cursor after all visible rows up to ``ends`` were returned.

        Args:
            ends: last returned id of each table.
            unseen: numbers of the transactions in progress, as in `Database.transactions`.
            following: number of the next transaction.
        """
        if unseen[0] == following:
            return _Cursor(ends)
        if self.marks and unseen[0] < self.next_transaction:
            return self._replace(seen=ends, unseen=unseen)
        complete = map(min, self.marks, ends)  # a call that reads only a part may end before the marks
        ids = list(map(max, self.ids, complete)) if self.marks else self.ids
        return _Cursor(ids, ends, following, ends, unseen)


class ChangesMixin(StoreMixin):
    """Methods of the tracking store that return what was added."""

    def changes(self, after: str = "") -> Changes:
        cursor = _parse_cursor(after) if after else _Cursor([MAX_STEPS] * len(_TABLES))  # after all rows
        wanted = {f"after_{table}": row for table, row in enumerate(cursor.ids)}
        wanted |= {f"seen_{table}": row for table, row in enumerate(cursor.seen)}
        with self._database.read() as connection:
            unseen, following = self._database.transactions(connection)
            known = {"unseen": cursor.unseen, "unseen_from": cursor.unseen[-1], "following": following}
            query = _select_tails(self._database.was_visible)
            # A cursor with numbers that no call returned may leave out all rows.
            with self._database.limit_time(connection, _TOO_SLOW):
                rows = connection.execute(query, {**wanted, **known, "most": _ROWS}).all()
        by_table: list[list[Row[Any]]] = [[] for _ in _TABLES]
        for row in rows:
            by_table[row.table].append(row)
        ends = list(map(_end, by_table))
        if not after:
            begin = _Cursor([max(0, end - _OVERLAP) for end in ends])
            return Changes(cursor=str(begin.advance(ends, unseen, following)))
        # After a deletion of the last rows, SQLite gives their ids again to rows that this call did not read.
        ids = [max(0, end - _ROWS) if end < row else row for end, row in zip(ends, cursor.ids, strict=True)]
        if not cursor.marks and ids != cursor.ids:
            return self.changes(str(_Cursor(ids)))
        found: dict[str, set[int]] = {name: set() for name, _ in _TABLES}
        for (name, _), of_table in zip(_TABLES, by_table, strict=True):
            found[name].update(row.subject for row in of_table if row.subject is not None)
        return Changes(
            cursor=str(cursor.advance(ends, unseen, following)),
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


@cache
def _select_tails(was_visible: Callable[[Table], ColumnElement[bool]]) -> CompoundSelect[Any]:
    """Select the new rows of each table by subject, and its last id with no subject.

    Args:
        was_visible: the method of the database.
    """
    parts: list[Any] = []
    for number, (_, subject) in enumerate(_TABLES):
        table, row = literal_column(str(number), Integer).label("table"), subject.table.c.id
        was_returned = and_(row <= bindparam(f"seen_{number}"), was_visible(subject.table))
        new = select(subject.label("subject"), row.label("row"))
        new = new.where(row > bindparam(f"after_{number}"), not_(was_returned))
        read = new.order_by(row).limit(bindparam("most")).subquery().c
        by_subject = select(table, read.subject, func.max(read.row).label("last"), func.count().label("rows"))
        parts += (
            by_subject.group_by(read.subject),
            select(table, cast(null(), BigInteger), func.max(row), literal_column("0")),
        )
    return union_all(*parts)


def _parse_cursor(text: str) -> _Cursor:
    if not _FORMAT.fullmatch(text):
        raise ValueError(f"{text!r:.100} is not a cursor of changes; expected one that the store returned")
    ids, *later = ([int(number) for number in part.split(",")] for part in text.split(";"))
    if max(map(max, (ids, *later))) > MAX_STEPS:
        raise ValueError(f"{text!r:.300} is not a cursor of changes; numbers are at most {MAX_STEPS}")
    marks = (later[0][:-1], later[0][-1]) if later else ()
    seen = (later[1][: len(_TABLES)], later[1][len(_TABLES) :]) if len(later) > 1 else ()
    return _Cursor(ids, *marks, *seen)
