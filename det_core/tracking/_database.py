"""Transactions on one database, from any thread, across forks, with errors a person can act on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError, StatementError

from det_core.tracking import _fork
from det_core.tracking._outage import Outage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, Engine, FromClause

    from det_core.errors import TrackingError


class Database(ABC):
    """An engine with short transactions. A subclass knows one kind of database, and all that is special about it."""

    clock: ColumnElement[Any]
    """SQL: the database's time in seconds, so that leases do not depend on the hosts' clocks."""

    def __init__(self, engine: Engine, wait: float, **reading: Any) -> None:
        """Keep the engine.

        Args:
            wait: seconds for which transactions are repeated while the database is unavailable.
            reading: execution options of transactions that only read.
        """
        self.url = engine.url.render_as_string(hide_password=False)
        self.retry = Outage(wait).retry
        self._readers = engine.execution_options(**reading) if reading else engine
        self._writers = engine.execution_options(det_writes=True)
        self._durable_writers = engine.execution_options(det_writes=True, det_durable=True)
        _fork.engines.add(engine)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view."""
        with _fork.passing(), self._explained(), self._readers.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, alone: bool = False, durable: bool = False) -> Iterator[Connection]:
        """All or nothing.

        Args:
            alone: whether to exclude other transactions with this option.
            durable: whether the transaction, and all earlier ones, survive a power cut once the block ends.
        """
        engine = self._durable_writers if durable else self._writers
        with _fork.passing(), self._explained(), engine.begin() as connection:
            if alone:
                self.lock_out_others(connection)
            yield connection
            self.commit(connection)

    def commit(self, connection: Connection) -> None:
        """Commit a transaction that wrote."""
        connection.commit()

    def close(self) -> None:
        """Close all connections that no transaction uses; a later one opens its own."""
        with _fork.passing():
            self._readers.dispose()

    @abstractmethod
    def lock_out_others(self, connection: Connection) -> None:
        """Wait until no other transaction that calls this is open."""

    @abstractmethod
    def number(self, of: FromClause, metric: str) -> ColumnElement[Any]:
        """SQL: the metric of the rows if it is a finite number, else NULL."""

    @abstractmethod
    def explain(self, error: DBAPIError) -> TrackingError:
        """What a person should know about a driver's error."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self.explain(error) from error
        except StatementError as error:  # a value that cannot be written down
            raise (error.orig or error) from None
