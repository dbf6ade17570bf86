"""Shared operations on rows, which find and lock them, convert them to records and reject stale writers."""

from __future__ import annotations

from dataclasses import fields
from functools import partial, wraps
from inspect import isfunction
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    case,
    func,
    literal_column,
    select,
    type_coerce,
    update,
)

from det_core.errors import CallTooLarge, RecordNotFound, StaleRun
from det_core.interfaces.records import (
    LONGEST_BRIEF,
    LONGEST_SEARCH,
    MAX_ROWS,
    SEARCHED,
    ExperimentRecord,
    Shortened,
    TrialRecord,
)
from det_core.tracking._column_types import ListedJson, ListedText, MessageText, utc_now
from det_core.tracking._database import shown_url
from det_core.tracking._deferred_json import ManyJson
from det_core.tracking._schema import experiments, runs, trials
from det_core.tracking.reading_limits import uncounted_reading

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import CompoundSelect

    from det_core.tracking._database import Database

R = TypeVar("R")

LARGE_ROWS = 20
"""Number of large rows that a database without files of its own sends at once."""
RUNNER_ENDED = "its runner ended first"
"""Reason for the end of a run whose end nobody has recorded."""

id_list = partial(bindparam, expanding=True, literal_execute=True)
"""Make a list of ids for ``column.in_``. They become part of the SQL, because the number of parameters is limited."""

_heading = select(trials.c.experiment_id, trials.c.run_id, trials.c.steps_completed).where(
    trials.c.id == bindparam("trial")
)
_heading_locked = _heading.with_for_update()


class StoreMixin:
    """Base class for groups of tracking store methods.

    Public methods are repeated as a whole while the database is unavailable.
    """

    _database: Database

    def __init_subclass__(cls) -> None:
        for name, member in vars(cls).copy().items():
            if isfunction(member) and not name.startswith("_"):
                setattr(cls, name, _retried(member))


def _retried(method: Callable[..., R]) -> Callable[..., R]:
    @wraps(method)
    def repeat(self: StoreMixin, *args: Any, **kwargs: Any) -> R:
        return self._database.retry(lambda: method(self, *args, **kwargs))

    return repeat


def record_columns(table: Table, record: type[Any]) -> list[Column[Any]]:
    """Return the columns of a record, which have the names of its fields."""
    return [table.c[field.name] for field in fields(record)]


def brief_column(column: Column[Any]) -> ColumnElement[Any]:
    """Return a column for lists: without JSON objects, and only with the beginnings of texts.

    Texts do not count for `limited_reading`, or whoever writes many would keep others from reading a list.
    """
    if isinstance(column.type, ListedJson):
        return literal_column("'{}'", column.type).label(column.name)
    if isinstance(column.type, ListedText | MessageText):
        return func.substr(column, 1, SEARCHED, type_=Text).label(column.name)
    return column


def brief_trial_columns() -> list[ColumnElement[Any]]:
    """Return the columns of trials for `brief_trial`."""
    text = type_coerce(trials.c.hparams, Text)
    short = case((func.length(text) <= LONGEST_BRIEF, text)).label("hparams")
    columns = record_columns(trials, TrialRecord)
    return [short if column is trials.c.hparams else brief_column(column) for column in columns]


def brief_trial(**values: Any) -> TrialRecord:
    """Return a trial for lists, whose hyperparameters are decoded when they are used."""
    text = values["hparams"]
    return TrialRecord(**{**values, "hparams": Shortened() if text is None else ManyJson(text)})


def fetch_records(connection: Connection, record: Callable[..., R], query: Select[Any]) -> list[R]:
    """Return the rows of a query as records.

    Raises:
        CallTooLarge: they are more than `limited_reading` permits.
    """
    with connection.execute(query.execution_options(yield_per=LARGE_ROWS)) as rows:
        return [record(**row._mapping) for row in rows]


def fetch_record(connection: Connection, record: type[R], table: Table, *where: ColumnElement[bool], what: str) -> R:
    """Return the single record that matches the conditions.

    Args:
        connection: connection with an open transaction.
        record: type of the record.
        table: the table that contains the record.
        where: the conditions.
        what: description of the record, for the error message.

    Raises:
        RecordNotFound: no row matches.
    """
    row = fetch_only_row(connection, select(*record_columns(table, record)).where(*where), what)
    return record(**row._mapping)


def insert_row(connection: Connection, table: Table, values: dict[str, Any]) -> int:
    """Insert a row and return its id."""
    key = connection.execute(table.insert().values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def get_experiment(connection: Connection, experiment_id: int) -> ExperimentRecord:
    """Return an experiment. Raises RecordNotFound if there is none with this id."""
    what = f"experiment {experiment_id}"
    return fetch_record(connection, ExperimentRecord, experiments, experiments.c.id == experiment_id, what=what)


def get_trial(connection: Connection, trial_id: int) -> TrialRecord:
    """Return a trial. Raises RecordNotFound if there is none with this id."""
    return fetch_record(connection, TrialRecord, trials, trials.c.id == trial_id, what=f"trial {trial_id}")


def fetch_only_row(connection: Connection, query: Select[Any], what: str, **parameters: object) -> Row[Any]:
    """Return the single row of a query, which does not count for `limited_reading`.

    Args:
        connection: connection with an open transaction.
        query: a query with at most one row.
        what: description of the row, for the error message.
        parameters: parameters of the query.

    Raises:
        RecordNotFound: the query has no row.
    """
    with uncounted_reading():
        row = connection.execute(query, parameters).one_or_none()
    if row is None:
        raise RecordNotFound(f"there is no {what} in {shown_url(connection.engine)}")
    return row


def fetch_large_rows(
    connection: Connection, query: Select[Any] | CompoundSelect[Any], count: Callable[[Row[Any]], int], most: int
) -> tuple[list[Row[Any]], bool]:
    """Fetch rows that may be large, a few at a time, and return whether some were left out, too.

    Args:
        connection: the connection.
        query: the query.
        count: function that returns the number of characters of a row.
        most: number of characters after which the others are left out.
    """
    fetched, characters = list[Row[Any]](), 0
    with connection.execute(query.execution_options(yield_per=LARGE_ROWS)) as rows:
        for row in rows:
            fetched.append(row)
            characters += count(row)
            if characters > most:
                return fetched, True
    return fetched, False


def contains_text(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Return an SQL condition that a text is in the beginning of a column, ignoring case.

    Its costs are the product of both lengths.

    Raises:
        ValueError: the text is too long.
    """
    if len(text) > LONGEST_SEARCH:
        raise ValueError(f"{text[:20]!r}… has {len(text)} characters; expected at most {LONGEST_SEARCH} to look for")
    return func.substr(column, 1, SEARCHED, type_=column.type).icontains(text, autoescape=True)


def lock_experiment(connection: Connection, experiment_id: int, lease: str = "") -> None:
    """Lock the experiment against other writers.

    Args:
        connection: connection with an open transaction.
        experiment_id: id of the experiment.
        lease: required holder of the lease. An empty string permits any holder.

    Raises:
        RecordNotFound: there is no such experiment.
        StaleRun: the lease has another holder.
    """
    query = select(experiments.c.lease_holder).where(experiments.c.id == experiment_id).with_for_update()
    holder = fetch_only_row(connection, query, f"experiment {experiment_id}").lease_holder
    if lease and holder != lease:
        raise StaleRun(f"experiment {experiment_id} is no longer run by {lease}, but by {holder or 'nobody'}")


def holder_of(connection: Connection, experiment_id: int, clock: ColumnElement[Any]) -> str | None:
    """Return the holder of a lease that has not expired by the database's clock."""
    valid = (experiments.c.lease_expires > clock).label("valid")
    query = select(experiments.c.lease_holder, valid).where(experiments.c.id == experiment_id)
    row = fetch_only_row(connection, query, f"experiment {experiment_id}")
    return row.lease_holder if row.valid else None


def lock_trial(connection: Connection, trial_id: int, *, lease: str = "") -> Row[Any]:
    """Lock the trial against other writers, and return its row with run_id and steps_completed.

    Args:
        connection: connection with an open transaction.
        trial_id: id of the trial.
        lease: required holder of the experiment's lease. An empty string permits any holder.

    Raises:
        RecordNotFound: there is no such trial.
        StaleRun: the lease has another holder.
    """
    what = f"trial {trial_id}"
    if lease:
        lock_experiment(connection, fetch_only_row(connection, _heading, what, trial=trial_id).experiment_id, lease)
    return fetch_only_row(connection, _heading_locked, what, trial=trial_id)


def require_few_rows(count: int, what: str) -> None:
    """Raise CallTooLarge if one call writes more than `MAX_ROWS` rows."""
    if count > MAX_ROWS:
        raise CallTooLarge(f"one call reports {count} {what}; expected at most {MAX_ROWS}")


def fence_run(connection: Connection, trial_id: int, run_id: int) -> int:
    """Lock the trial against other writers, and return its steps_completed.

    Raises:
        RecordNotFound: there is no such trial.
        StaleRun: the run is not the newest of the trial.
    """
    trial = lock_trial(connection, trial_id)
    if trial.run_id != run_id:
        raise StaleRun(f"run {run_id} of trial {trial_id} may not write: the newest is run {trial.run_id}")
    return int(trial.steps_completed)


def update_trial(connection: Connection, trial_id: int, **values: Any) -> None:
    """Set columns of a trial."""
    connection.execute(update(trials).where(trials.c.id == trial_id).values(values))


def end_runs(
    connection: Connection, reason: str, *of_trials: ColumnElement[bool], time: datetime | None = None
) -> None:
    """Record the end of runs that have not ended, and clear the placements of their trials.

    Args:
        connection: connection with an open transaction.
        reason: why their processes ended before their work was done, or an empty string if it was done.
        of_trials: the conditions on their trials.
        time: time of the end. None stands for now.
    """
    chosen = select(trials.c.id).where(*of_trials)
    running = (runs.c.trial_id.in_(chosen), runs.c.end_time.is_(None))
    connection.execute(update(runs).where(*running).values(end_time=time or utc_now(), end_reason=reason))
    connection.execute(update(trials).where(*of_trials, trials.c.placement != "").values(placement=""))


def require_share(progress: float) -> float:
    """Return a share of work.

    Raises:
        ValueError: it is not in the range from 0 to 1.
    """
    if not 0 <= progress <= 1:
        raise ValueError(f"progress is {progress}; expected 0 to 1")
    return progress
