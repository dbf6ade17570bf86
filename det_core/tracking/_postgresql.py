"""The record in PostgreSQL, for several hosts."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from det_core.errors import StoreBusy, TrackingError
from det_core.tracking._database import Database
from det_core.tracking._outage import Unavailable

_KEY = 0x646574  # "det": of the advisory lock
_LOCK_NOT_AVAILABLE = "55P03"
_AWAY = ("08", "40001", "40P01", "53300", "57P01", "57P02", "57P03")
"""Prefixes of the SQLSTATEs of lost connections and deadlocks, after which a transaction can be repeated."""
_FOR_GOOD = (
    "authentication failed",
    "certificate",
    "does not exist",
    "no password supplied",
    "not permitted to log in",
    "pg_hba.conf",
    "name or service not known",
)
"""Parts of the text of permanent connection errors, which have no SQLSTATE."""
_LIMITS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""libpq options that detect an unreachable host. Options in the URL take precedence."""


class Postgresql(Database):
    clock = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def __init__(self, url: sa.URL, wait: float) -> None:
        self._wait = wait
        limits = {name: value for name, value in _LIMITS.items() if name not in url.query}
        options = f"{url.query.get('options', '')} -c lock_timeout={int(wait * 1000)}"
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={**limits, "options": options},
                pool_pre_ping=True,
                max_overflow=-1,
            )
        except ModuleNotFoundError as error:
            raise TrackingError("PostgreSQL needs its driver: pip install 'det-core[postgresql]'") from error
        # One snapshot per transaction; READ COMMITTED would take one per statement.
        super().__init__(engine, wait, isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def lock_out_others(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_KEY)))

    def commit(self, connection: sa.Connection) -> None:
        number = connection.scalar(sa.select(sa.func.txid_current_if_assigned()))
        try:
            connection.commit()
        except DBAPIError as error:
            # The server may have committed before the connection was lost.
            if not (_is_away(error) and self.retry(partial(self._is_committed, number))):
                raise

    def number(self, column: sa.Column[Any], key: str) -> sa.ColumnElement[Any]:
        value = sa.cast(column, sa.JSON)[key]
        return sa.case((sa.func.json_typeof(value) == "number", sa.cast(value.as_string(), sa.Numeric)))

    def explain(self, error: DBAPIError) -> TrackingError:
        where = repr(self._readers.url)  # without the password
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            return StoreBusy(
                f"{where}: another session held a lock for {self._wait:g} s. pg_stat_activity shows which."
            )
        kind = Unavailable if _is_away(error) else TrackingError
        return kind(f"{where}: PostgreSQL says: {error.orig}")

    def _is_committed(self, number: int | None) -> bool:
        with self._explained(), self._readers.connect() as connection:
            status = connection.scalar(sa.select(sa.func.txid_status(number)))
        if status == "in progress":
            raise Unavailable(f"{self._readers.url!r}: PostgreSQL has not ended transaction {number} yet")
        return bool(status == "committed")


def _is_away(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_AWAY)
    text = str(error.orig).lower()
    return isinstance(error, OperationalError) and not any(part in text for part in _FOR_GOOD)
