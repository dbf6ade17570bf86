"""The record in PostgreSQL, for several hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from det_core.errors import StoreBusy, TrackingError
from det_core.tracking._database import Database

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

_KEY = 0x646574  # "det": of the advisory lock
_LOCK_NOT_AVAILABLE = "55P03"


class Postgresql(Database):
    clock = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def __init__(self, url: sa.URL, wait: float) -> None:
        self._wait = wait
        options = f"{url.query.get('options', '')} -c lock_timeout={int(wait * 1000)}"
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={"options": options},
                pool_pre_ping=True,
                max_overflow=-1,
            )
        except ModuleNotFoundError as error:
            raise TrackingError("PostgreSQL needs its driver: pip install 'det-core[postgresql]'") from error
        super().__init__(engine)

    def lock_out_others(self, connection: sa.Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_KEY)))

    def number(self, column: sa.Column[Any], key: str) -> sa.ColumnElement[Any]:
        value = sa.cast(column, sa.JSON)[key]
        return sa.case((sa.func.json_typeof(value) == "number", sa.cast(value.as_string(), sa.Numeric)))

    def explain(self, error: DBAPIError) -> TrackingError:
        where = repr(self._readers.url)  # without the password
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            return StoreBusy(
                f"{where}: another session held a lock for {self._wait:g} s. pg_stat_activity shows which."
            )
        return TrackingError(f"{where}: PostgreSQL says: {error.orig}")
