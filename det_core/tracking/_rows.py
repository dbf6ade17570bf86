"""What all parts of the SQL store do with rows: find them, turn them into records, refuse stale writers."""

from __future__ import annotations

from dataclasses import fields
from functools import wraps
from inspect import isfunction
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, bindparam, select, update

from det_core.errors import RecordNotFound, StaleRun
from det_core.interfaces.tracking import Experiment, Trial
from det_core.tracking._schema import experiments, trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from det_core.tracking._database import Database

R = TypeVar("R")

_heading = select(trials.c.experiment_id, trials.c.run_id, trials.c.steps_completed).where(
    trials.c.id == bindparam("trial")
)
_heading_locked = _heading.with_for_update()


class Part:
    """Methods of the store over one database.

    Public methods are repeated as a whole while the database is unavailable.
    """

    _database: Database

    def __init_subclass__(cls) -> None:
        for name, member in vars(cls).copy().items():
            if isfunction(member) and not name.startswith("_"):
                setattr(cls, name, _retried(member))


def _retried(method: Callable[..., R]) -> Callable[..., R]:
    @wraps(method)
    def repeat(self: Part, *args: Any, **kwargs: Any) -> R:
        return self._database.retry(lambda: method(self, *args, **kwargs))

    return repeat


def columns(table: Table, record: type[Any]) -> list[Column[Any]]:
    """The columns that make up a record: they are named as its fields are."""
    return [table.c[field.name] for field in fields(record)]


def fetch(connection: Connection, record: type[R], query: Select[Any]) -> list[R]:
    return [record(**row._mapping) for row in connection.execute(query)]


def get(connection: Connection, record: type[R], table: Table, *where: ColumnElement[bool], what: str) -> R:
    """The one record. Raises RecordNotFound."""
    row = only(connection, select(*columns(table, record)).where(*where), what)
    return record(**row._mapping)


def insert(connection: Connection, table: Table, values: dict[str, Any]) -> int:
    """Add a row; its id."""
    key = connection.execute(table.insert().values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def get_experiment(connection: Connection, experiment_id: int) -> Experiment:
    what = f"experiment {experiment_id}"
    return get(connection, Experiment, experiments, experiments.c.id == experiment_id, what=what)


def get_trial(connection: Connection, trial_id: int) -> Trial:
    return get(connection, Trial, trials, trials.c.id == trial_id, what=f"trial {trial_id}")


def only(connection: Connection, query: Select[Any], what: str, **parameters: object) -> Row[Any]:
    """The one row. Raises RecordNotFound."""
    row = connection.execute(query, parameters).one_or_none()
    if row is None:
        raise RecordNotFound(f"there is no {what} in {connection.engine.url!r}")
    return row


def lock_experiment(connection: Connection, experiment_id: int, lease: str = "") -> None:
    """Keep other writers from the experiment. Raises StaleRun if ``lease`` is given and another's."""
    query = select(experiments.c.lease_holder).where(experiments.c.id == experiment_id).with_for_update()
    holder = only(connection, query, f"experiment {experiment_id}").lease_holder
    if lease and holder != lease:
        raise StaleRun(f"experiment {experiment_id} is no longer run by {lease}, but by {holder or 'nobody'}")


def holder_of(connection: Connection, experiment_id: int, clock: ColumnElement[Any]) -> str | None:
    """Return the holder of a lease that has not expired by the database's clock."""
    valid = (experiments.c.lease_expires > clock).label("valid")
    query = select(experiments.c.lease_holder, valid).where(experiments.c.id == experiment_id)
    row = only(connection, query, f"experiment {experiment_id}")
    return row.lease_holder if row.valid else None


def lock_trial(connection: Connection, trial_id: int, *, lease: str = "") -> Row[Any]:
    """Keep other writers from the trial; its run_id and steps_completed. Raises StaleRun as for experiments."""
    what = f"trial {trial_id}"
    if lease:
        lock_experiment(connection, only(connection, _heading, what, trial=trial_id).experiment_id, lease)
    return only(connection, _heading_locked, what, trial=trial_id)


def fence(connection: Connection, trial_id: int, run_id: int) -> int:
    """Keep other writers from the trial; its steps_completed. Raises StaleRun unless the run is its newest."""
    trial = lock_trial(connection, trial_id)
    if trial.run_id != run_id:
        raise StaleRun(f"run {run_id} of trial {trial_id} may not write: the newest is run {trial.run_id}")
    return int(trial.steps_completed)


def update_trial(connection: Connection, trial_id: int, **values: Any) -> None:
    connection.execute(update(trials).where(trials.c.id == trial_id).values(values))
