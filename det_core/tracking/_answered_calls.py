"""Calls whose write, entry in the audit log and answer are one transaction, so that none of them exists alone.

A remote client that has lost an answer repeats the call with the same id, to this server or to its successor. A
repeated call finds the id, which was committed with the write, and gets the answer again.

A client has one lane for each call that it makes at the same time, and numbers the calls of a lane. Only the last
answer of a lane can still be wanted, so the table has one row per lane.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from det_core.errors import TrackingError
from det_core.interfaces.server_store import Change
from det_core.tracking._audit_log import insert_action
from det_core.tracking._column_types import utc_now
from det_core.tracking._database import current_scope
from det_core.tracking._outage import Unavailable
from det_core.tracking._schema import answered_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection
    from typing_extensions import Self

    from det_core.tracking._database import Database

T = TypeVar("T")

_c = answered_calls.c
_select_answer = select(_c.number, _c.answer).where(_c.lane == bindparam("of_lane"))
_select_answer_locked = _select_answer.with_for_update()
_insert = answered_calls.insert()
_replace = update(answered_calls).where(_c.lane == bindparam("of_lane"))
_LONGEST_ID = 100
_GREATEST_NUMBER = 2**63 - 1
_KEPT = timedelta(hours=1)
"""Time for which answers are kept. Clients repeat calls for a few minutes at most."""


def execute_call(database: Database, call: Callable[[Change], T], call_id: str | None) -> T:
    """Return the result of a call, as `ServerStore.execute` describes it."""
    whole = _WholeCall() if call_id is None else _AnsweredCall(*_parse(call_id))

    def attempt() -> T:
        try:
            with whole:
                result = call(whole.change)
                whole.commit(result)
                return result
        except Exception:  # such as that the record is gone, which the first execution has deleted
            if (found := whole.find_answer(database)) is not None:
                return cast("T", found)
            raise

    return database.retry(attempt)


def _parse(call_id: str) -> tuple[str, int]:
    lane, _, number = call_id.rpartition("-")
    if not lane or not number.isdecimal() or len(call_id) > _LONGEST_ID or int(number) > _GREATEST_NUMBER:
        raise TrackingError(f"the id of a call is {call_id!r:.100}; expected LANE-NUMBER")
    return lane, int(number)


class _WholeCall:
    """Transactions of one call, the first of which also adds to the audit log. Entering makes it that of the thread."""

    def __init__(self) -> None:
        self.change = Change()
        self._open = ExitStack()
        self._connection: Connection | None = None
        self._is_in_audit_log = False

    def __enter__(self) -> Self:
        self._token = current_scope.set(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        current_scope.reset(self._token)
        self._connection = None
        self._open.__exit__(*exc_info)  # type: ignore[arg-type]

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @contextmanager
    def join(self, transaction: AbstractContextManager[Connection]) -> Iterator[Connection]:
        """Open a transaction for writing that stays open after the block, so that `commit` can add to it.

        An earlier transaction of the call is committed first. If the call has been answered before, this raises
        TrackingError.
        """
        self._end()
        with ExitStack() as stack:
            connection = stack.enter_context(transaction)
            self._begin(connection)
            yield connection
            self._connection, self._open = connection, stack.pop_all()

    def commit(self, result: object) -> None:
        """Commit the open transaction. A call that writes nothing has none, and is recorded nowhere."""
        if self._connection is not None:
            self._remember(self._connection, result)
            self._end()

    def find_answer(self, database: Database) -> bytes | None:
        """Return the remembered answer, or None if there is none."""
        return None

    def _begin(self, connection: Connection) -> None:
        """Check that the call may have an effect."""

    def _remember(self, connection: Connection, result: object) -> None:
        """Remember the answer."""

    def _end(self) -> None:
        """Confirm and commit the open transaction, if there is one."""
        if (connection := self._connection) is None:
            return
        self.change.confirm()
        new = None if self._is_in_audit_log else self.change.action
        if new is not None:
            insert_action(connection, new)
        self._connection = None
        self._open.close()
        self._is_in_audit_log |= new is not None


class _AnsweredCall(_WholeCall):
    """Transactions of a call that a client may repeat, the last of which also remembers the answer.

    Args:
        lane: the client's lane.
        number: number of the call in the lane.
    """

    def __init__(self, lane: str, number: int) -> None:
        super().__init__()
        self._lane = lane
        self._number = number
        self._is_known = False

    def find_answer(self, database: Database) -> bytes | None:
        with database.read() as connection:
            row = connection.execute(_select_answer, {"of_lane": self._lane}).one_or_none()
        return bytes(row.answer) if row and row.number == self._number else None

    def _begin(self, connection: Connection) -> None:
        row = connection.execute(_select_answer_locked, {"of_lane": self._lane}).one_or_none()
        self._is_known = row is not None
        if row and row.number >= self._number:
            raise TrackingError(f"call {self._number} arrived after call {row.number}, so it was not executed")

    def _remember(self, connection: Connection, answer: object) -> None:
        values = {"number": self._number, "answer": answer, "time": utc_now()}
        if self._is_known:
            connection.execute(_replace, {"of_lane": self._lane, **values})
            return
        old = select(_c.lane).where(_c.time < utc_now() - _KEPT).with_for_update(skip_locked=True)
        connection.execute(delete(answered_calls).where(_c.lane.in_(old)))
        try:
            connection.execute(_insert, {"lane": self._lane, **values})
        except IntegrityError:  # the client has repeated the call while its first execution was under way
            raise Unavailable(f"call {self._number} is being executed") from None
