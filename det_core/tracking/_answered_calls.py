"""Calls of remote clients, which take effect exactly once although their answers may get lost.

A client that has lost an answer repeats the call with the same id, to this server or to its successor. The id and the
answer are therefore committed with the call's own write. A repeated call finds them and gets the answer again.

A client has one lane for each call that it makes at the same time, and numbers the calls of a lane. Only the last
answer of a lane can still be wanted, so the table has one row per lane.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError

from det_core.errors import TrackingError
from det_core.tracking._column_types import utc_now
from det_core.tracking._outage import Unavailable
from det_core.tracking._schema import answered_calls
from det_core.tracking._transaction_scope import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection
    from typing_extensions import Self

    from det_core.tracking._database import Database

_c = answered_calls.c
_look = select(_c.number, _c.answer).where(_c.lane == bindparam("of_lane"))
_look_locked = _look.with_for_update()
_insert = answered_calls.insert()
_replace = update(answered_calls).where(_c.lane == bindparam("of_lane"))
_LONGEST_ID = 100
_KEPT = timedelta(hours=1)
"""Time for which answers are kept. Clients repeat calls for a few minutes at most."""


def answer_call_once(database: Database, call_id: str, answer: Callable[[], bytes]) -> bytes:
    """Return the answer to a call, as `SqlTrackingStore.answer_once` describes it."""
    lane, _, number = call_id.rpartition("-")
    if not lane or not number.isdecimal() or len(call_id) > _LONGEST_ID:
        raise TrackingError(f"the id of a call is {call_id!r:.100}; expected LANE-NUMBER")

    def attempt() -> bytes:
        try:
            with AnsweredCall(lane, int(number)) as call:
                return call.commit(answer())
        except Exception:  # such as that the record is gone, which the first execution has deleted
            if (found := _find_answer(database, lane, int(number))) is not None:
                return found
            raise

    return database.retry(attempt)


def _find_answer(database: Database, lane: str, number: int) -> bytes | None:
    with database.read() as connection:
        row = connection.execute(_look, {"of_lane": lane}).one_or_none()
    return bytes(row.answer) if row and row.number == number else None


class AnsweredCall:
    """Transactions of one call. The last one also records the answer. Entering makes it that of the thread.

    Args:
        lane: the client's lane.
        number: number of the call in the lane.
    """

    def __init__(self, lane: str, number: int) -> None:
        self._lane = lane
        self._number = number
        self._open = ExitStack()
        self._connection: Connection | None = None
        self._is_known = False

    def __enter__(self) -> Self:
        self._token = current_scope.set(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        current_scope.reset(self._token)
        self._open.__exit__(*exc_info)  # type: ignore[arg-type]

    @contextmanager
    def join(self, transaction: AbstractContextManager[Connection]) -> Iterator[Connection]:
        """Open a transaction for writing that stays open after the block, so that `commit` can add the answer.

        An earlier transaction of the call is committed first. If the call has been answered before, this raises
        TrackingError.
        """
        self._end()
        with ExitStack() as stack:
            connection = stack.enter_context(transaction)
            self._check_new(connection)
            yield connection
            self._connection, self._open = connection, stack.pop_all()

    def commit(self, answer: bytes) -> bytes:
        """Record the answer in the open transaction and commit it. A call that writes nothing is not recorded."""
        if self._connection is not None:
            self._record(self._connection, answer)
            self._end()
        return answer

    def _end(self) -> None:
        self._connection = None
        self._open.close()

    def _check_new(self, connection: Connection) -> None:
        row = connection.execute(_look_locked, {"of_lane": self._lane}).one_or_none()
        self._is_known = row is not None
        if row and row.number >= self._number:
            raise TrackingError(f"call {self._number} arrived after call {row.number}, so it was not executed")

    def _record(self, connection: Connection, answer: bytes) -> None:
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
