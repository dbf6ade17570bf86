"""Model registry in the tracking store."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, func, select, update

from det_core.errors import RecordExists, TrackingError
from det_core.interfaces.model_records import ModelRecord, ModelSort, ModelVersionRecord
from det_core.interfaces.records import CheckpointState
from det_core.tracking._column_types import utc_now
from det_core.tracking._rows import (
    StoreMixin,
    brief_column,
    contains_text,
    fetch_only_row,
    fetch_record,
    fetch_records,
    get_experiment,
    insert_row,
    record_columns,
)
from det_core.tracking._schema import checkpoints, model_versions, models, trials

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_m, _v = models.c, model_versions.c
_versions = select(func.count()).where(_v.model_id == _m.id).correlate(models).scalar_subquery().label("versions")
_models, _brief_models = (
    select(*(_versions if field.name == "versions" else column(_m[field.name]) for field in fields(ModelRecord)))
    for column in (lambda column: column, brief_column)
)


class ModelRegistryMixin(StoreMixin):
    """Methods of the tracking store for models and their versions."""

    def create_model(
        self,
        name: str,
        *,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        notes: str = "",
        owner: str = "",
    ) -> ModelRecord:
        _check_name(name)
        time = utc_now()
        values = {
            "name": name,
            "description": description,
            "metadata": metadata or {},
            "labels": labels,
            "notes": notes,
            "owner": owner,
            "creation_time": time,
            "last_updated_time": time,
        }
        with self._database.write(alone=True) as connection:
            if connection.execute(select(_m.id).where(_m.name == name)).first():
                raise RecordExists(f"model {name!r} already exists; add versions to it, or choose another name")
            return _get(connection, insert_row(connection, models, values))

    def model(self, name: str | int) -> ModelRecord:
        with self._database.read() as connection:
            return _get(connection, name)

    def models(
        self,
        *,
        sort_by: ModelSort = ModelSort.NAME,
        descending: bool = False,
        name: str = "",
        description: str = "",
        archived: bool | None = None,
        limit: int | None = None,
        offset: int = 0,
        brief: bool = False,
    ) -> list[ModelRecord]:
        column = _m[sort_by.value]
        order = (column.desc(), _m.id.desc()) if descending else (column, _m.id)
        wanted = contains_text(_m.name, name), contains_text(_m.description, description)
        query = (_brief_models if brief else _models).where(*wanted)
        if archived is not None:
            query = query.where(_m.archived == archived)
        with self._database.read() as connection:
            return fetch_records(connection, ModelRecord, query.order_by(*order).limit(limit).offset(offset))

    def edit_model(
        self,
        name: str | int,
        *,
        description: str | None = None,
        notes: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
    ) -> ModelRecord:
        changes = {"description": description, "notes": notes, "labels": labels, "archived": archived}
        with self._database.write() as connection:
            found = _lock(connection, name)
            _change(connection, found, **{key: value for key, value in changes.items() if value is not None})
            return _get(connection, found.id)

    def edit_model_metadata(
        self, name: str | int, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> ModelRecord:
        with self._database.write() as connection:
            found = _lock(connection, name)
            _change(connection, found, metadata=edit_metadata(found.metadata, add, remove))
            return _get(connection, found.id)

    def delete_model(self, name: str | int) -> None:
        with self._database.write() as connection:
            found = _lock(connection, name)
            connection.execute(delete(model_versions).where(_v.model_id == found.id))
            connection.execute(delete(models).where(_m.id == found.id))

    def add_model_version(
        self,
        name: str | int,
        checkpoint_uuid: str,
        *,
        version_name: str = "",
        comment: str = "",
        notes: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        owner: str = "",
    ) -> ModelVersionRecord:
        with self._database.write(durable=True) as connection:
            found = _lock(connection, name)
            if found.archived:
                raise TrackingError(
                    f"model {found.name!r} is archived, so it takes no new versions; first: "
                    f"det model unarchive {shlex.quote(found.name)}"
                )
            _check_complete(connection, checkpoint_uuid)
            time = utc_now()
            number = connection.execute(select(_m.last_version).where(_m.id == found.id)).scalar_one() + 1
            values = {
                "model_id": found.id,
                "version": number,
                "checkpoint_uuid": checkpoint_uuid,
                "name": version_name,
                "comment": comment,
                "notes": notes,
                "metadata": metadata or {},
                "labels": labels,
                "owner": owner,
                "creation_time": time,
                "last_updated_time": time,
            }
            connection.execute(model_versions.insert().values(values))
            _change(connection, found, last_version=number)
            return _get_version(connection, found, number)

    def model_versions(
        self, name: str | int, *, limit: int | None = None, brief: bool = False
    ) -> list[ModelVersionRecord]:
        columns = record_columns(model_versions, ModelVersionRecord)
        with self._database.read() as connection:
            of_model = select(*map(brief_column, columns) if brief else columns).where(
                _v.model_id == _get(connection, name).id
            )
            latest = fetch_records(connection, ModelVersionRecord, of_model.order_by(_v.version.desc()).limit(limit))
            return latest[::-1]

    def model_version(self, name: str | int, version: int) -> ModelVersionRecord:
        with self._database.read() as connection:
            return _get_version(connection, _get(connection, name), version)

    def edit_model_version(
        self,
        name: str | int,
        version: int,
        *,
        version_name: str | None = None,
        comment: str | None = None,
        notes: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> ModelVersionRecord:
        changes = {"name": version_name, "comment": comment, "notes": notes, "labels": labels}
        with self._database.write() as connection:
            found = _lock(connection, name)
            meant = _get_version(connection, found, version)
            kept = {key: value for key, value in changes.items() if value is not None}
            connection.execute(_of_version(update(model_versions), meant).values(**kept, last_updated_time=utc_now()))
            _change(connection, found)
            return _get_version(connection, found, version)

    def delete_model_version(self, name: str | int, version: int) -> None:
        with self._database.write() as connection:
            found = _lock(connection, name)
            connection.execute(_of_version(delete(model_versions), _get_version(connection, found, version)))
            _change(connection, found)

    def registered_checkpoints(self, experiment_id: int) -> set[str]:
        query = (
            select(_v.checkpoint_uuid)
            .join(checkpoints, checkpoints.c.uuid == _v.checkpoint_uuid)
            .join(trials, trials.c.id == checkpoints.c.trial_id)
            .where(trials.c.experiment_id == experiment_id)
        )
        with self._database.read() as connection:
            get_experiment(connection, experiment_id)
            return set(connection.execute(query).scalars())


def edit_metadata(
    metadata: Mapping[str, Any], add: Mapping[str, Any] | None, remove: Collection[str]
) -> dict[str, Any]:
    """Return a copy of the metadata without the keys to remove and with the values to add."""
    removed = set(remove)
    return {key: value for key, value in metadata.items() if key not in removed} | dict(add or {})


def _check_name(name: str) -> None:
    # A number would be taken for an id, and a slash would split the name in the path of a URL.
    if not name or name != name.strip() or name.isdigit() or "/" in name or "\\" in name:
        raise ValueError(
            f"a model cannot have the name {name!r}; expected text without slashes and surrounding spaces that is not "
            "a number, for example 'digits'"
        )


def _check_complete(connection: Connection, uuid: str) -> None:
    """Lock the checkpoint against a concurrent deletion.

    Raises:
        TrackingError: the checkpoint is not complete.
    """
    query = select(checkpoints.c.state).where(checkpoints.c.uuid == uuid).with_for_update()
    state = fetch_only_row(connection, query, f"checkpoint {uuid}").state
    if state is not CheckpointState.COMPLETED:
        raise TrackingError(
            f"checkpoint {uuid} is {state.value}, but only COMPLETED checkpoints can become versions of a model; "
            "to list them: det checkpoint list"
        )


def _get(connection: Connection, name: str | int) -> ModelRecord:
    meant = _m.id == name if isinstance(name, int) else _m.name == name
    return ModelRecord(**fetch_only_row(connection, _models.where(meant), f"model {name!r}")._mapping)


def _lock(connection: Connection, name: str | int) -> ModelRecord:
    """Lock the model against other writers, and return it."""
    found = _get(connection, name)
    connection.execute(select(_m.id).where(_m.id == found.id).with_for_update())
    return _get(connection, found.id)


def _change(connection: Connection, model: ModelRecord, **values: Any) -> None:
    connection.execute(update(models).where(_m.id == model.id).values(**values, last_updated_time=utc_now()))


def _get_version(connection: Connection, model: ModelRecord, version: int) -> ModelVersionRecord:
    meant = (_v.model_id == model.id, _v.version == version)
    what = f"version {version} of model {model.name!r}"
    return fetch_record(connection, ModelVersionRecord, model_versions, *meant, what=what)


def _of_version(statement: Any, version: ModelVersionRecord) -> Any:
    return statement.where(_v.model_id == version.model_id, _v.version == version.version)
