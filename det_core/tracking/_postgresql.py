"""PostgreSQL database of the tracking store, for several hosts."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from det_core.errors import CallTooLarge, RecordNotFound, StoreBusy, TrackingError
from det_core.extras import explain_missing_extra
from det_core.json_values import NON_FINITE
from det_core.tracking._column_types import FINITE
from det_core.tracking._database import MOST_UNSEEN, TOO_LARGE, TOO_SLOW, Database, shown_url
from det_core.tracking._outage import Unavailable
from det_core.tracking._schema import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEY = 0x646574  # key of the advisory lock, "det" in ASCII
_LOCK_NOT_AVAILABLE = "55P03"
_CANCELED = "57014"
_OUT_OF_RANGE = "22003"
_AWAY = ("08", "40001", "40P01", "53100", "53300", "57P01", "57P02", "57P03", "58030")
"""Prefixes of the SQLSTATEs of lost connections, deadlocks and a full or broken disk, after which a transaction can be
repeated."""
_FOR_GOOD = (
    "authentication failed",
    "certificate",
    "does not exist",
    "no password supplied",
    "not permitted to log in",
    "number of parameters",
    "pg_hba.conf",
    "name or service not known",
)
"""Parts of the text of permanent connection errors, which have no SQLSTATE."""
_PAIR = r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}"
_UNREADABLE = r"\\u(0000|d[89a-f])"
"""Patterns of surrogate pairs, and of escapes that PostgreSQL refuses otherwise."""
_NON_FINITE = r"([:,[])-?(NaN|Infinity)"
_ONCE: sa.ColumnElement[int] = sa.literal_column("0")
"""Offset of a subquery that prevents the planner from parsing JSON again for each use of what it selects."""
_LIMITS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""libpq options that detect an unreachable host. Options in the URL take precedence."""

# The end of the snapshot is not the next transaction, but the number after the last one that has ended.
_TRANSACTIONS = sa.select(sa.cast(sa.func.txid_current_snapshot(), sa.Text), sa.func.txid_current())

for _index in metrics.indexes:
    _index.dialect_options["postgresql"]["where"] = _index.dialect_options["sqlite"]["where"]


class Postgresql(Database):
    """PostgreSQL database, accessed with psycopg.

    Args:
        url: URL of the database.
        wait: number of seconds for which transactions wait for a locked or unavailable database.

    Raises:
        TrackingError: the driver is not installed.
    """

    most_writers = 8
    most_seconds = 5.0
    clock = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def __init__(self, url: sa.URL, wait: float) -> None:
        limits = {name: value for name, value in _LIMITS.items() if name not in url.query}
        # In other zones, the driver cannot read times at the ends of the years 1 to 9999, which scripts can report.
        options = f"{url.query.get('options', '')} -c lock_timeout={int(wait * 1000)} -c jit=off -c timezone=UTC"
        try:
            engine = sa.create_engine(
                url.set(drivername="postgresql+psycopg"),
                connect_args={**limits, "options": options},
                pool_pre_ping=True,
                max_overflow=-1,
            )
        except ModuleNotFoundError as error:
            raise TrackingError(explain_missing_extra("postgresql")) from error
        # One snapshot per transaction. READ COMMITTED would take one per statement.
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

    def transactions(self, connection: sa.Connection) -> tuple[Sequence[int], int]:
        snapshot, following = connection.execute(_TRANSACTIONS).one()  # such as 10:20:10,14,15
        _, end, in_progress = snapshot.split(":")
        return [int(number) for number in (*in_progress.split(","), end) if number][:MOST_UNSEEN], following

    @staticmethod
    def was_visible(table: sa.Table) -> sa.ColumnElement[bool]:
        # xmin is the transaction that wrote the row, without the upper half of its number. The rows of savepoints,
        # which det does not use, have numbers of their own.
        age = sa.func.age(sa.literal_column(f"{table.name}.xmin"))
        writer = sa.bindparam("following", type_=sa.BigInteger) - age
        unseen = sa.bindparam("unseen", type_=sa.BigInteger, expanding=True)
        return sa.and_(writer < sa.bindparam("unseen_from", type_=sa.BigInteger), writer.not_in(unseen))

    @staticmethod
    def number(of: sa.FromClause, metric: str) -> sa.ColumnElement[Any]:
        text = _json_of(of, metric)
        number = sa.case((text.regexp_match("^[-0-9]"), sa.cast(text, sa.Numeric)))
        return sa.select(_finite(number)).correlate(of).scalar_subquery()

    @staticmethod
    def non_finite(of: sa.FromClause, metric: str) -> sa.ColumnElement[Any]:
        name = sa.func.btrim(_json_of(of, metric), '"')
        return sa.select(sa.case((name.in_(list(NON_FINITE)), name))).correlate(of).scalar_subquery()

    @staticmethod
    def json_number(column: sa.Column[Any], path: Sequence[str]) -> sa.ColumnElement[Any]:
        found = _json_value(column, path)
        number = sa.case((found.kind == "number", sa.cast(found.value, sa.Numeric)))
        return sa.select(_finite(number)).scalar_subquery()

    @staticmethod
    def json_text(column: sa.Column[Any], path: Sequence[str]) -> sa.ColumnElement[Any]:
        found = _json_value(column, path)
        text = sa.case((found.kind.in_(("string", "boolean")), found.value))
        return sa.select(text).scalar_subquery()

    @staticmethod
    def json_array(column: sa.Column[Any], paths: Sequence[Sequence[str]]) -> sa.ColumnElement[Any]:
        # To replace many such names takes longer than to let Python read the JSON.
        json = _parsed_json(column, sa.case((_has_non_finite(column), None), else_=sa.type_coerce(column, sa.Text)))
        values = sa.func.json_build_array(*(sa.func.json_extract_path(json, *path) for path in paths))
        return sa.select(sa.case((json.is_not(None), sa.cast(values, sa.Text)))).scalar_subquery()

    @contextmanager
    def limit_time(self, connection: sa.Connection, message: str = TOO_SLOW) -> Iterator[None]:
        milliseconds = str(int(self.most_seconds * 1000))
        connection.execute(sa.select(sa.func.set_config("statement_timeout", milliseconds, True)))
        try:
            yield
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _CANCELED:
                raise
            raise CallTooLarge(message.format(self.most_seconds)) from None

    @staticmethod
    def seconds(time: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.cast(sa.extract("epoch", time), sa.Double)

    def explain(self, error: DBAPIError) -> TrackingError:
        where = shown_url(self._readers)
        state = getattr(error.orig, "sqlstate", None)
        if state == _OUT_OF_RANGE:
            return RecordNotFound(TOO_LARGE)
        if state == _LOCK_NOT_AVAILABLE:
            return StoreBusy(
                f"{where}: another session held a lock for {self._wait:g} s. pg_stat_activity shows which."
            )
        kind = Unavailable if _is_away(error) else TrackingError
        return kind(f"{where}: PostgreSQL says: {error.orig}")

    def _is_committed(self, number: int | None) -> bool:
        with self._explained(), self._readers.connect() as connection:
            status = connection.scalar(sa.select(sa.func.txid_status(number)))
        if status == "in progress":
            raise Unavailable(f"{shown_url(self._readers)}: PostgreSQL has not ended transaction {number} yet")
        return bool(status == "committed")


def _json_of(of: sa.FromClause, metric: str) -> sa.ColumnElement[str]:
    """Return an SQL expression for the JSON of a metric."""
    text = sa.cast(sa.cast(of.c.metrics, sa.JSON)[metric], sa.Text).label("text")
    return sa.select(text).correlate(of).offset(_ONCE).subquery().c.text


def _finite(number: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    least, greatest = map(Decimal, FINITE)
    return sa.case((number.between(least, greatest), sa.cast(number, sa.Double)))


def _json_value(column: sa.Column[Any], path: Sequence[str]) -> Any:
    """Return a row with the text and the type of a value in JSON, of which each use reads the same."""
    json = _parsed_json(column)
    value = sa.func.json_extract_path_text(json, *path).label("value")
    kind = sa.func.json_typeof(sa.func.json_extract_path(json, *path)).label("kind")
    return sa.select(value, kind).offset(_ONCE).subquery().c


def _has_non_finite(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return an SQL condition for JSON that contains the name of a number that is not finite, also within a text."""
    text = sa.type_coerce(column, sa.Text)
    return sa.or_(*(sa.func.strpos(text, name) > 0 for name in ("NaN", "Infinity")))


def _parsed_json(column: sa.Column[Any], text: sa.ColumnElement[Any] | None = None) -> sa.ColumnElement[Any]:
    """Return JSON, the text of which is prepared once for all uses.

    Args:
        column: the JSON as text.
        text: the part of it to parse, or NULL. By default all.

    Python writes numbers and escapes that PostgreSQL refuses. NULL takes their place, and that of the whole JSON.
    """
    text = sa.type_coerce(column, sa.Text) if text is None else text
    escapes = sa.func.regexp_replace(sa.func.replace(text, "\\\\", "x"), _PAIR, "x", "g")
    is_unreadable = sa.and_(sa.func.strpos(text, "\\u") > 0, escapes.regexp_match(_UNREADABLE))
    finite = sa.case((_has_non_finite(column), sa.func.regexp_replace(text, _NON_FINITE, r"\1null", "g")), else_=text)
    parsed = sa.cast(sa.case((is_unreadable, None), else_=finite), sa.JSON).label("parsed")
    return sa.select(parsed).correlate(column.table).offset(_ONCE).subquery().c.parsed


def _is_away(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_AWAY)
    text = str(error.orig).lower()
    return isinstance(error, OperationalError) and not any(part in text for part in _FOR_GOOD)
