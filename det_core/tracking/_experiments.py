"""Experiments in the tracking store, and their leases."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Connection, Text, func, literal, or_, select, true, type_coerce, update

from det_core.errors import ExperimentBusy, RecordExists
from det_core.interfaces.records import ENDINGS, LONGEST_NAME, CodeVersion, ExperimentRecord, State, stronger_request
from det_core.tracking._brief_configs import brief_config, brief_config_column
from det_core.tracking._column_types import make_writable, time_of, utc_now
from det_core.tracking._deferred_json import DeferredJson
from det_core.tracking._filters import ExperimentValues, has_item, limited
from det_core.tracking._rows import (
    LARGE_ROWS,
    RUNNER_ENDED,
    StoreMixin,
    brief_column,
    contains_text,
    end_runs,
    fetch_only_row,
    get_experiment,
    holder_of,
    id_list,
    insert_row,
    lock_experiment,
    record_columns,
    require_share,
)
from det_core.tracking._schema import code_versions, experiments, trials
from det_core.tracking._search_events import delete_search
from det_core.tracking._webhooks import announce_state

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from det_core.tracking._database import Database

_c = experiments.c

_ORDERS = {"id": True, "start_time": True, "progress": True, "name": False, "owner": False, "state": False}
"""Columns by which experiments can be sorted, and whether the greatest value comes first."""
_LONGEST_LEASE = 24 * 60 * 60
"""Maximum number of seconds for which a lease is valid. Runners renew theirs every few seconds."""


class ExperimentsMixin(StoreMixin):
    """Methods of the tracking store for experiments."""

    def create_experiment(
        self,
        *,
        config: Mapping[str, Any],
        original_config: str = "",
        model_definition: bytes = b"",
        owner: str = "",
        unmanaged: bool = False,
        external_id: str | None = None,
        code_version: CodeVersion | None = None,
    ) -> ExperimentRecord:
        values = {
            "state": State.QUEUED,
            "name": config.get("name") or "",
            "description": config.get("description") or "",
            "labels": config.get("labels") or [],
            "config": config,
            "original_config": original_config,
            "model_definition": model_definition,
            "owner": owner,
            "unmanaged": unmanaged,
            "external_id": external_id,
            "job_id": str(uuid.uuid4()),
            "start_time": utc_now(),
        }
        same = select(_c.id).where(_c.external_id == external_id)
        with self._database.write(alone=external_id is not None, durable=True) as connection:
            found = None if external_id is None else connection.execute(same).scalar_one_or_none()
            experiment = get_experiment(connection, found or insert_row(connection, experiments, values))
            if code_version and not found:
                row = {"experiment_id": experiment.id, **vars(code_version)}
                connection.execute(code_versions.insert().values(row))
            if owner and experiment.owner not in ("", owner):
                raise RecordExists(f"the external id {external_id!r} is that of an experiment of {experiment.owner}")
            return experiment

    def experiment(self, experiment_id: int) -> ExperimentRecord:
        with self._database.read() as connection:
            return get_experiment(connection, experiment_id)

    def experiments(
        self,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
        order: str = "id",
        sort_by: str = "",
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
        brief: bool = False,
    ) -> list[ExperimentRecord]:
        by = self._sorted(order, sort_by, reverse)
        # Only ids are sorted and skipped, because the other columns are large.
        query = select(_c.id).where(*self._wanted(states, name, label, archived, where)).order_by(*by)
        with self._database.read() as connection, limited(self._database, connection, where or sort_by):
            if sort_by:
                ExperimentValues(self._database).require_value(connection, sort_by, true())
            ids = list(connection.scalars(query.limit(limit).offset(offset)))
            found = fetch_experiments(self._database, connection, ids, brief=brief)
            return [found[experiment_id] for experiment_id in ids if experiment_id in found]

    def experiments_by_id(self, experiment_ids: Collection[int], *, brief: bool = False) -> list[ExperimentRecord]:
        with self._database.read() as connection:
            return list(fetch_experiments(self._database, connection, experiment_ids, brief=brief).values())

    def code_versions(self, experiment_ids: Collection[int]) -> dict[int, CodeVersion]:
        named = code_versions.c.experiment_id
        query = select(named, *record_columns(code_versions, CodeVersion))
        with self._database.read() as connection:
            rows = connection.execute(query.where(named.in_(id_list(None, list(experiment_ids)))))
            found = [dict(row._mapping) for row in rows]
            return {row.pop("experiment_id"): CodeVersion(**row) for row in found}

    def count_experiments(
        self,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
    ) -> int:
        wanted = self._wanted(states, name, label, archived, where)
        query = select(func.count()).select_from(experiments).where(*wanted)
        with self._database.read() as connection, limited(self._database, connection, where):
            return int(connection.execute(query).scalar_one())

    def _wanted(
        self, states: Sequence[State], name: str | None, label: str | None, archived: bool | None, where: str
    ) -> list[ColumnElement[bool]]:
        wanted = (
            _c.state.in_(states) if states else None,
            None if name is None else contains_text(_c.name, name),
            None if label is None else has_item(type_coerce(_c.labels, Text), label),
            None if archived is None else _c.archived == archived,
            ExperimentValues(self._database).matches(where) if where else None,
        )
        return [condition for condition in wanted if condition is not None]

    def _sorted(self, order: str, sort_by: str, reverse: bool) -> list[ColumnElement[Any]]:
        if order not in _ORDERS:
            raise ValueError(f"experiments cannot be sorted by {order!r}; expected {', '.join(_ORDERS)}")
        if sort_by:
            return [*ExperimentValues(self._database).order(sort_by, reverse=reverse), _c.id.desc()]
        return [_c[order].desc() if _ORDERS[order] is not reverse else _c[order].asc(), _c.id.desc()]

    def edit_experiment(
        self,
        experiment_id: int,
        *,
        name: str | None = None,
        description: str | None = None,
        notes: str | None = None,
        project: str | None = None,
        workspace: str | None = None,
        add_labels: Sequence[str] = (),
        remove_labels: Sequence[str] = (),
        archived: bool | None = None,
    ) -> ExperimentRecord:
        values = {"name": name, "description": description, "notes": notes, "archived": archived}
        changed: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id)
            if add_labels or remove_labels:
                labels = dict.fromkeys([*get_experiment(connection, experiment_id).labels, *add_labels])
                removed = set(remove_labels)
                changed["labels"] = [label for label in labels if label not in removed]
            groups = {"project": project, "workspace": workspace}
            if moved := {key: value for key, value in groups.items() if value is not None}:
                changed["config"] = {**get_experiment(connection, experiment_id).config, **moved}
            if changed:
                connection.execute(update(experiments).where(_c.id == experiment_id).values(changed))
            return get_experiment(connection, experiment_id)

    def model_definition(self, experiment_id: int) -> bytes:
        query = select(_c.model_definition).where(_c.id == experiment_id)
        with self._database.read() as connection:
            return bytes(fetch_only_row(connection, query, f"experiment {experiment_id}").model_definition)

    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id, lease)
            if state is State.PAUSED and get_experiment(connection, experiment_id).state in ENDINGS:
                state = State.CANCELED
            values: dict[str, Any] = {
                "state": state,
                "error": make_writable(error) if error else error,
                "end_time": utc_now() if state.final else None,
            }
            if state is State.COMPLETED:
                values["progress"] = 1.0
            announce_state(connection, experiment_id, state)
            connection.execute(update(experiments).where(_c.id == experiment_id).values(values))

    def request_experiment_state(self, experiment_id: int, state: State) -> bool:
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id)
            experiment = get_experiment(connection, experiment_id)
            if experiment.state.final or holder_of(connection, experiment_id, self._database.clock) is None:
                return False
            if stronger_request(experiment.state, state) is state:
                announce_state(connection, experiment_id, state)
                connection.execute(update(experiments).where(_c.id == experiment_id).values(state=state, end_time=None))
            return True

    def continue_experiment(
        self, experiment_id: int, *, config: Mapping[str, Any], original_config: str, restart_search: bool
    ) -> ExperimentRecord:
        values = {"config": config, "original_config": original_config, "state": State.PAUSED, "error": None}
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id)
            if holder := holder_of(connection, experiment_id, self._database.clock):
                raise ExperimentBusy(f"experiment {experiment_id} is being run by {holder}")
            announce_state(connection, experiment_id, State.PAUSED)
            connection.execute(update(experiments).where(_c.id == experiment_id).values(**values, end_time=None))
            if restart_search:
                delete_search(connection, experiment_id)
            return get_experiment(connection, experiment_id)

    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None:
        require_share(progress)
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id, lease)
            connection.execute(update(experiments).where(_c.id == experiment_id).values(progress=progress))

    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float, state: State | None = None) -> None:
        _require_lease_time(seconds)
        if len(holder) > LONGEST_NAME:  # lists of experiments read the holders of all
            raise ValueError(f"the holder has {len(holder)} characters; expected at most {LONGEST_NAME}")
        clock = self._database.clock
        free = or_(_c.lease_holder.is_(None), _c.lease_holder == holder, _c.lease_expires <= clock)
        take = update(experiments).where(_c.id == experiment_id, free)
        if state:
            take = take.values(state=state, error=None, end_time=utc_now() if state.final else None)
        with self._database.write(durable=state is not None) as connection:
            lock_experiment(connection, experiment_id)
            _end_runs_with_lease(connection, experiment_id, clock)
            if state:
                announce_state(connection, experiment_id, state)
            taken = connection.execute(take.values(lease_holder=holder, lease_expires=clock + seconds))
            if not taken.rowcount:
                other = connection.execute(select(_c.lease_holder).where(_c.id == experiment_id)).scalar_one()
                raise ExperimentBusy(f"experiment {experiment_id} is being run by {other}")

    def renew_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        _require_lease_time(seconds)
        renew = update(experiments).where(_c.id == experiment_id)
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id, holder)
            connection.execute(renew.values(lease_expires=self._database.clock + seconds))

    def lease_holder(self, experiment_id: int) -> str | None:
        with self._database.read() as connection:
            return holder_of(connection, experiment_id, self._database.clock)

    def lease_holders(self, experiment_ids: Collection[int] | None = None) -> dict[int, str]:
        wanted = true() if experiment_ids is None else _c.id.in_(id_list(None, list(experiment_ids)))
        query = select(_c.id, _c.lease_holder).where(wanted, _c.lease_expires > self._database.clock)
        with self._database.read() as connection:
            return {row.id: row.lease_holder for row in connection.execute(query)}

    def release_lease(self, experiment_id: int, holder: str) -> None:
        held = update(experiments).where(_c.id == experiment_id, _c.lease_holder == holder)
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id)
            _end_runs_with_lease(connection, experiment_id, self._database.clock)
            asked = held.where(_c.state.in_(ENDINGS))
            if connection.execute(asked.values(end_time=utc_now())).rowcount:
                announce_state(connection, experiment_id, State.CANCELED)
                connection.execute(asked.values(state=State.CANCELED))
            connection.execute(held.values(lease_holder=None, lease_expires=None))


def fetch_experiments(
    database: Database, connection: Connection, experiment_ids: Collection[int], *, brief: bool
) -> dict[int, ExperimentRecord]:
    """Return those of the experiments that exist by id, for lists if they are brief."""
    # Configs are most of the data that is read here, and few callers use them, so they are decoded on access.
    config = brief_config_column(database) if brief else type_coerce(_c.config, Text)
    columns = (
        config if column is _c.config else _brief_column(column) if brief else column
        for column in record_columns(experiments, ExperimentRecord)
    )
    query = select(*columns).where(_c.id.in_(id_list(None, list(experiment_ids)))).order_by(_c.id)
    if brief:
        query = query.execution_options(yield_per=LARGE_ROWS)
    read_config = brief_config if brief else DeferredJson
    with connection.execute(query) as rows:
        return {row["id"]: ExperimentRecord(**{**row, "config": read_config(row["config"])}) for row in rows.mappings()}


def _brief_column(column: Column[Any]) -> ColumnElement[Any]:
    return literal("").label(column.name) if column is _c.original_config else brief_column(column)


def _end_runs_with_lease(connection: Connection, experiment_id: int, clock: ColumnElement[Any]) -> None:
    """Record that the runs of a lost runner have ended when its lease expired, if it has."""
    expired = select(_c.lease_expires).where(_c.id == experiment_id, _c.lease_expires <= clock)
    if end := connection.execute(expired).scalar_one_or_none():
        end_runs(connection, RUNNER_ENDED, trials.c.experiment_id == experiment_id, time=time_of(end))


def _require_lease_time(seconds: float) -> None:
    if not abs(seconds) <= _LONGEST_LEASE:  # or the time of its end could not be read
        raise ValueError(f"the lease would last {seconds} seconds; expected at most {_LONGEST_LEASE}")
