"""Transactions on one database. They work in any thread and across forks, and raise errors with advice for the user."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import event, false
from sqlalchemy.exc import DBAPIError, StatementError

from det_core.errors import RecordNotFound
from det_core.json_values import NON_FINITE
from det_core.tracking import _fork_safety
from det_core.tracking._outage import Outage, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Column, ColumnElement, Connection, Engine, FromClause, Select, Table
    from sqlalchemy.pool import ConnectionPoolEntry

    from det_core.errors import TrackingError


class TransactionScope(Protocol):
    """Owner of the transactions for writing that a thread opens."""

    @property
    def is_open(self) -> bool:
        """Whether there is an open transaction."""

    def join(self, transaction: AbstractContextManager[Connection]) -> AbstractContextManager[Connection]:
        """Return a context manager that enters a transaction, and leaves it open if its block ends without an error."""


current_scope: ContextVar[TransactionScope | None] = ContextVar("det_transaction_scope", default=None)
"""Scope of the present thread, or None if each transaction is committed at the end of its block."""


class Turns:
    """Number of turns that threads take. With semaphores, a thread that never pauses would leave none to others.

    Args:
        count: maximum number of threads that have a turn at the same time.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.RLock()  # a signal handler may ask for a turn, too

    @contextmanager
    def take(self, timeout: float) -> Iterator[None]:
        """Wait for a turn, and have it during the block.

        Args:
            timeout: maximum number of seconds to wait.

        Raises:
            TimeoutError: other threads have had all turns for this time.
        """
        mine = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                mine.set()
            else:
                self._waiting.append(mine)
        try:
            if not mine.wait(timeout):
                raise TimeoutError
            yield
        finally:
            self._leave(mine)

    def _leave(self, mine: threading.Event) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
            elif self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


_ROWS = 5000
"""Number of rows that are in memory at the same time."""
MOST_UNSEEN = 100
"""Maximum number of transactions that `Database.transactions` returns."""
TOO_SLOW = "the filter or sort order takes more than {:g} s; compare fewer values, or values of fewer records"
"""Message about a statement that `Database.limit_time` ends."""
TOO_LARGE = "ids and counts in the tracking store are integers of at most 64 bits"
"""Message about a number that is none of a record."""


def shown_url(engine: Engine) -> str:
    """Return the URL of a database without its password and its options, of which one may be another password."""
    return repr(engine.url.set(query={}))


class Database(ABC):
    """Engine with short transactions. Each subclass contains everything that is specific to one kind of database."""

    clock: ColumnElement[Any]
    """SQL expression for the database's time in seconds, so that leases do not depend on the hosts' clocks."""
    most_readers = 10
    """Maximum number of transactions of a process that read at the same time. Other threads wait, so that hundreds of
    trials need few connections."""
    most_urgent_readers = 2
    """Maximum number of further ones, which do not wait for them."""
    most_seconds: float
    """Time after which a list with a filter, or sorted by any value, is given up. With SQLite, it is that of the
    processor, as other processes may slow this one down."""
    most_writers: int
    """Maximum number of transactions of a process that write at the same time."""

    def __init__(self, engine: Engine, wait: float, **reading: Any) -> None:
        """Initialize the database.

        Args:
            engine: the engine, which opens the connections.
            wait: number of seconds for which transactions are repeated while the database is unavailable.
            reading: execution options of transactions that only read.
        """
        self.url = engine.url.render_as_string(hide_password=False)
        self.retry = Outage(wait).retry
        self._wait = wait
        self._is_closed = False
        self._reading = Turns(self.most_readers)
        self._reading_urgently = Turns(self.most_urgent_readers)
        self._writing = Turns(self.most_writers)
        self._readers = engine.execution_options(**reading) if reading else engine
        self._writers = engine.execution_options(det_writes=True)
        self._durable_writers = engine.execution_options(det_writes=True, det_durable=True)
        _fork_safety.engines.add(engine)
        event.listen(engine, "connect", lambda _, record: record.info.update(pool=engine.pool))
        event.listen(engine, "checkin", self._close_late)

    @contextmanager
    def read(self, *, urgent: bool = False) -> Iterator[Connection]:
        """Open a read-only transaction, which sees one consistent snapshot.

        Args:
            urgent: whether it takes no time and must not wait for those that do. One beside an open transaction for
                writing is always urgent, because others wait to write.
        """
        scope = current_scope.get()
        turns = self._reading_urgently if urgent or (scope and scope.is_open) else self._reading
        with self._turn(turns), self._explained(), self._readers.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, alone: bool = False, durable: bool = False) -> Iterator[Connection]:
        """Open a transaction for writing, which is committed at the end of the block or has no effect.

        Args:
            alone: whether to exclude other transactions with this option.
            durable: whether this and all earlier transactions survive a power cut once the block ends.
        """
        transaction = self._transaction(alone=alone, durable=durable)
        scope = current_scope.get()
        with transaction if scope is None else scope.join(transaction) as connection:
            yield connection

    def commit(self, connection: Connection) -> None:
        """Commit a transaction for writing."""
        connection.commit()

    def close(self) -> None:
        """Close all connections, those in use and those of later transactions when the transactions end."""
        self._is_closed = True
        with _fork_safety.delay_forks():
            self._readers.dispose()

    @abstractmethod
    def lock_out_others(self, connection: Connection) -> None:
        """Wait until no other transaction that called this method is open."""

    def transactions(self, connection: Connection) -> tuple[Sequence[int], int]:
        """Return which transactions this one does not see, and the number of the next one.

        Returns:
            At most `MOST_UNSEEN` numbers in order. This transaction sees neither those before the last, nor any from
            the last on. If all earlier ones have ended, which is always so in databases that commit in the order of
            ids, the only number is that of the next transaction.
        """
        return [0], 0

    @staticmethod
    def was_visible(table: Table) -> ColumnElement[bool]:
        """Return an SQL condition for rows that an earlier transaction saw, given the result of `transactions`.

        Its parameters are ``unseen``, ``unseen_from`` (the last number) and ``following`` (of the present transaction).
        """
        return false()

    @staticmethod
    @abstractmethod
    def number(of: FromClause, metric: str) -> ColumnElement[Any]:
        """Return an SQL expression for a metric, which is NULL if the value is not a finite number.

        Args:
            of: the table of metrics, or an alias of it.
            metric: name of the metric.
        """

    @staticmethod
    @abstractmethod
    def non_finite(of: FromClause, metric: str) -> ColumnElement[Any]:
        """Return an SQL expression for the name in `NON_FINITE` of a metric, which is NULL for other values.

        Args:
            of: the table of metrics, or an alias of it.
            metric: name of the metric.
        """

    @staticmethod
    @abstractmethod
    def json_number(column: Column[Any], path: Sequence[str]) -> ColumnElement[Any]:
        """Return an SQL expression for a number in JSON with Python's NaN and Infinity, or NULL for other values.

        Args:
            column: the JSON as text.
            path: the keys that lead to the value.
        """

    @staticmethod
    @abstractmethod
    def json_text(column: Column[Any], path: Sequence[str]) -> ColumnElement[Any]:
        """Return an SQL expression for a string, ``true`` or ``false`` in the same, or NULL for other values."""

    @staticmethod
    @abstractmethod
    def json_array(column: Column[Any], paths: Sequence[Sequence[str]]) -> ColumnElement[Any]:
        """Return an SQL expression for a JSON array of values in the same, or NULL if the database cannot read it.

        Args:
            column: the JSON as text.
            paths: the keys that lead to each value. Values that are missing, NaN or infinite become null.
        """

    @abstractmethod
    def limit_time(self, connection: Connection, message: str = TOO_SLOW) -> AbstractContextManager[None]:
        """Return a context manager that raises CallTooLarge in a statement that takes longer than `most_seconds`.

        Args:
            connection: an open transaction.
            message: message of the error, into which the number of seconds is formatted.
        """

    @staticmethod
    @abstractmethod
    def seconds(time: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return an SQL expression for a time in seconds since 1970."""

    def curves(
        self, connection: Connection, query: Select[Any], parameters: Mapping[str, Any]
    ) -> Iterator[tuple[int, int, float | None]]:
        """Yield the trials, steps and values of the rows that a query selects, in its order.

        Args:
            connection: an open transaction.
            query: selects the trial, the step, the number or NULL, and the name in `NON_FINITE` or NULL.
            parameters: parameters of the query.
        """
        for trial_id, step, number, name in connection.execute(query.execution_options(yield_per=_ROWS), parameters):
            yield trial_id, step, NON_FINITE.get(name) if number is None else float(number)

    @abstractmethod
    def explain(self, error: DBAPIError) -> TrackingError:
        """Return the error to raise instead of a driver's error, with advice for the user."""

    def _close_late(self, _: object, record: ConnectionPoolEntry) -> None:
        if self._is_closed or record.info.get("pool") is not self._readers.pool:
            record.invalidate()

    @contextmanager
    def _transaction(self, *, alone: bool, durable: bool) -> Iterator[Connection]:
        engine = self._durable_writers if durable else self._writers
        with self._turn(self._writing), self._explained(), engine.begin() as connection:
            if alone:
                self.lock_out_others(connection)
            yield connection
            self.commit(connection)

    @contextmanager
    def _turn(self, turns: Turns) -> Iterator[None]:
        """Wait until this process may open a transaction. No thread forks during the block."""
        with _fork_safety.delay_forks(), ExitStack() as turn:
            try:
                turn.enter_context(turns.take(self._wait))
            except TimeoutError:
                raise Unavailable(
                    f"{shown_url(self._readers)} was busy for {self._wait:g} s: earlier transactions of this process "
                    "have not ended. Look for another process that locks the database, or for an overloaded disk."
                ) from None
            yield

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self.explain(error) from error
        except OverflowError as error:
            raise RecordNotFound(TOO_LARGE) from error
        except StatementError as error:  # a value cannot be stored
            raise (error.orig or error) from None
