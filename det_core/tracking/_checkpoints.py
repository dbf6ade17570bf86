"""Checkpoints in the tracking store.

Their state is ACTIVE first, then COMPLETED. It becomes ERROR if the checkpoint is found damaged, and DELETED or
PARTIALLY_DELETED after a deletion.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select, update

from det_core.errors import RecordInUse, StaleRun, TrackingError
from det_core.interfaces.records import CHECKPOINT_ID, MAX_STEPS, CheckpointRecord, CheckpointState
from det_core.tracking._column_types import make_writable, utc_now
from det_core.tracking._model_registry import edit_metadata
from det_core.tracking._rows import (
    StoreMixin,
    brief_column,
    fence_run,
    fetch_only_row,
    fetch_records,
    get_experiment,
    get_trial,
    record_columns,
    update_trial,
)
from det_core.tracking._schema import checkpoints, metrics, model_versions, models, schema, trial_sources, trials
from det_core.tracking._scores import validation_of_checkpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_c = checkpoints.c
_sources = trial_sources.c


class CheckpointsMixin(StoreMixin):
    """Methods of the tracking store for checkpoints."""

    def begin_checkpoint(self, uuid: str, *, trial_id: int, run_id: int, storage: Mapping[str, Any]) -> None:
        if not CHECKPOINT_ID.fullmatch(uuid):
            raise ValueError(f"{uuid!r:.200} is no id of a checkpoint; expected letters, digits, - and _")
        values = {
            "uuid": uuid,
            "trial_id": trial_id,
            "run_id": run_id,
            "state": CheckpointState.ACTIVE,
            "storage": storage,
            "time": utc_now(),
        }
        with self._database.write(durable=True) as connection:
            fence_run(connection, trial_id, run_id)
            if connection.execute(select(schema.c.version).where(schema.c.cluster_id == uuid)).first():
                raise ValueError(f"{uuid} is the id of all TensorBoard files, so no checkpoint may have it")
            if connection.execute(select(_c.id).where(_c.uuid == uuid)).first():
                raise TrackingError(f"checkpoint {uuid} already exists; every checkpoint needs a unique id")
            connection.execute(checkpoints.insert().values(values))

    def complete_checkpoint(
        self,
        uuid: str,
        *,
        run_id: int,
        steps_completed: int | None,
        resources: Mapping[str, int],
        metadata: Mapping[str, Any],
    ) -> None:
        if steps_completed is not None and not 0 <= steps_completed <= MAX_STEPS:
            raise ValueError(f"checkpoint {uuid} has steps_completed {steps_completed}; expected 0 to {MAX_STEPS}")
        values = {
            "state": CheckpointState.COMPLETED,
            "steps_completed": steps_completed,
            "resources": resources,
            "size": sum(resources.values()),
            "metadata": metadata,
            "time": utc_now(),
        }
        with self._database.write(durable=True) as connection:
            begun = _get(connection, uuid, brief=True)
            reached = fence_run(connection, begun.trial_id, run_id)
            _refuse_others(begun, run_id)
            # The condition respects a deletion that came first. The lock of the fence excludes a concurrent one.
            active = (_c.uuid == uuid, _c.state == CheckpointState.ACTIVE)
            if not connection.execute(update(checkpoints).where(*active).values(values)).rowcount:
                raise TrackingError(
                    f"checkpoint {uuid} is {_get(connection, uuid, brief=True).state.value}, so it cannot be completed"
                )
            if steps_completed is not None and steps_completed > reached:
                update_trial(connection, begun.trial_id, steps_completed=steps_completed)

    def delete_checkpoint(
        self, uuid: str, *, only: CheckpointState | None = None, remaining: Mapping[str, int] | None = None
    ) -> bool:
        state = CheckpointState.PARTIALLY_DELETED if remaining else CheckpointState.DELETED
        remaining = remaining or {}
        values = {"state": state, "resources": remaining, "size": sum(remaining.values()), "time": utc_now()}
        meant = (_c.uuid == uuid, *(() if only is None else (_c.state == only,)))
        with self._database.write(durable=True) as connection:
            _lock(connection, uuid)
            _refuse_registered(connection, uuid)
            return bool(connection.execute(update(checkpoints).where(*meant).values(values)).rowcount)

    def fail_checkpoint(self, uuid: str, error: str) -> None:
        with self._database.write() as connection:
            if _lock(connection, uuid).state is CheckpointState.COMPLETED:
                values = {"state": CheckpointState.ERROR, "error": make_writable(error)}
                connection.execute(update(checkpoints).where(_c.uuid == uuid).values(values))

    def edit_checkpoint_metadata(
        self, uuid: str, *, add: Mapping[str, Any] | None = None, remove: Collection[str] = ()
    ) -> CheckpointRecord:
        with self._database.write() as connection:
            _lock(connection, uuid)
            given = fetch_only_row(connection, select(_c.metadata).where(_c.uuid == uuid), f"checkpoint {uuid}")
            metadata = edit_metadata(given.metadata, add, remove)
            connection.execute(update(checkpoints).where(_c.uuid == uuid).values(metadata=metadata))
            return _get(connection, uuid)

    def checkpoint(self, uuid: str, *, brief: bool = False) -> CheckpointRecord:
        with self._database.read() as connection:
            return _get(connection, uuid, brief=brief)

    def checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
    ) -> list[CheckpointRecord]:
        query = select(*record_columns(checkpoints, CheckpointRecord)).where(_c.state.in_(states)).order_by(_c.id)
        with self._database.read() as connection:
            if trial_id is not None:
                get_trial(connection, trial_id)
                query = query.where(_c.trial_id == trial_id)
            if experiment_id is not None:
                get_experiment(connection, experiment_id)
                of_experiment = select(trials.c.id).where(trials.c.experiment_id == experiment_id)
                query = query.where(_c.trial_id.in_(of_experiment))
            return fetch_records(connection, CheckpointRecord, query)

    def checkpoint_validations(
        self, *, experiment_id: int | None = None, trial_id: int | None = None, uuid: str | None = None
    ) -> dict[str, Mapping[str, Any]]:
        validated = metrics.alias()
        query = (
            select(_c.uuid, validated.c.metrics)
            .join_from(checkpoints, validated, validated.c.id == validation_of_checkpoint())
            .join(trials, trials.c.id == _c.trial_id)
        )
        wanted = {trials.c.experiment_id: experiment_id, _c.trial_id: trial_id, _c.uuid: uuid}
        meant = [column == value for column, value in wanted.items() if value is not None]
        with self._database.read() as connection:
            return {row.uuid: row.metrics for row in connection.execute(query.where(*meant))}

    def add_trial_source(
        self,
        trial_id: int,
        run_id: int,
        checkpoint_uuid: str,
        *,
        model_id: int | None = None,
        model_version: int | None = None,
    ) -> None:
        key = {"checkpoint_uuid": checkpoint_uuid, "trial_id": trial_id}
        known = trial_sources.select().where(_sources.checkpoint_uuid == checkpoint_uuid, _sources.trial_id == trial_id)
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            if connection.execute(known).first() is None:
                values = {**key, "model_id": model_id, "model_version": model_version}
                connection.execute(trial_sources.insert().values(values))

    def trials_using(self, checkpoint_uuid: str) -> list[int]:
        query = select(_sources.trial_id).where(_sources.checkpoint_uuid == checkpoint_uuid).order_by(_sources.trial_id)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def trials_of_checkpoints(self, uuids: Collection[str]) -> dict[str, int]:
        query = select(_c.uuid, _c.trial_id).where(_c.uuid.in_(uuids))
        with self._database.read() as connection:
            return {row.uuid: row.trial_id for row in connection.execute(query)}


def _get(connection: Connection, uuid: str, *, brief: bool = False) -> CheckpointRecord:
    columns = record_columns(checkpoints, CheckpointRecord)
    query = select(*(map(brief_column, columns) if brief else columns)).where(_c.uuid == uuid)
    return CheckpointRecord(**fetch_only_row(connection, query, f"checkpoint {uuid}")._mapping)


def _lock(connection: Connection, uuid: str) -> CheckpointRecord:
    """Lock the checkpoint against other writers, and return it without its storage, files and metadata."""
    connection.execute(select(_c.id).where(_c.uuid == uuid).with_for_update())
    return _get(connection, uuid, brief=True)


def _refuse_registered(connection: Connection, uuid: str) -> None:
    query = select(models.c.name, model_versions.c.version).join_from(models, model_versions)
    found = connection.execute(query.where(model_versions.c.checkpoint_uuid == uuid)).all()
    if found:
        versions = ", ".join(f"version {row.version} of model {row.name!r}" for row in found)
        first = f"det model delete-version {shlex.quote(found[0].name)} {found[0].version}"
        raise RecordInUse(f"checkpoint {uuid} is {versions}, so it cannot be deleted; first: {first}")


def _refuse_others(begun: CheckpointRecord, run_id: int) -> None:
    if begun.run_id != run_id:
        raise StaleRun(f"checkpoint {begun.uuid} was begun by run {begun.run_id}, so run {run_id} cannot complete it")
