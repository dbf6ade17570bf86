"""Experiments and their leases."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select, update

from det_core.errors import ExperimentBusy
from det_core.interfaces.tracking import Experiment, State
from det_core.tracking._rows import Part, columns, fetch, get_experiment, insert, lock_experiment, only
from det_core.tracking._schema import experiments
from det_core.tracking._types import now

if TYPE_CHECKING:
    from collections.abc import Mapping

_c = experiments.c


class Experiments(Part):
    def create_experiment(
        self,
        *,
        config: Mapping[str, Any],
        original_config: str = "",
        model_definition: bytes = b"",
        owner: str = "",
        unmanaged: bool = False,
        external_id: str | None = None,
    ) -> Experiment:
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
            "start_time": now(),
        }
        same = select(_c.id).where(_c.external_id == external_id)
        with self._database.write(alone=external_id is not None) as connection:
            found = None if external_id is None else connection.execute(same).scalar_one_or_none()
            created = found or insert(connection, experiments, values)
            return get_experiment(connection, created)

    def experiment(self, experiment_id: int) -> Experiment:
        with self._database.read() as connection:
            return get_experiment(connection, experiment_id)

    def experiments(self, *, limit: int | None = None, offset: int = 0) -> list[Experiment]:
        newest_first = select(*columns(experiments, Experiment)).order_by(_c.id.desc())
        with self._database.read() as connection:
            return fetch(connection, Experiment, newest_first.limit(limit).offset(offset))

    def model_definition(self, experiment_id: int) -> bytes:
        query = select(_c.model_definition).where(_c.id == experiment_id)
        with self._database.read() as connection:
            return bytes(only(connection, query, f"experiment {experiment_id}").model_definition)

    def set_experiment_state(
        self, experiment_id: int, state: State, *, lease: str = "", error: str | None = None
    ) -> None:
        values = {"state": state, "error": error, "end_time": now() if state.final else None}
        self._update_experiment(experiment_id, lease, values)

    def set_experiment_progress(self, experiment_id: int, progress: float, *, lease: str = "") -> None:
        self._update_experiment(experiment_id, lease, {"progress": progress})

    def acquire_lease(self, experiment_id: int, holder: str, *, seconds: float) -> None:
        clock = self._database.clock
        free = or_(_c.lease_holder.is_(None), _c.lease_holder == holder, _c.lease_expires <= clock)
        take = update(experiments).where(_c.id == experiment_id, free)
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id)
            taken = connection.execute(take.values(lease_holder=holder, lease_expires=clock + seconds))
            if not taken.rowcount:
                other = connection.execute(select(_c.lease_holder).where(_c.id == experiment_id)).scalar_one()
                raise ExperimentBusy(f"experiment {experiment_id} is being run by {other}")

    def lease_holder(self, experiment_id: int) -> str | None:
        valid = _c.lease_expires > self._database.clock
        query = select(_c.lease_holder, valid.label("valid")).where(_c.id == experiment_id)
        with self._database.read() as connection:
            row = only(connection, query, f"experiment {experiment_id}")
            return row.lease_holder if row.valid else None

    def release_lease(self, experiment_id: int, holder: str) -> None:
        release = update(experiments).where(_c.id == experiment_id, _c.lease_holder == holder)
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id)
            connection.execute(release.values(lease_holder=None, lease_expires=None))

    def _update_experiment(self, experiment_id: int, lease: str, values: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id, lease)
            connection.execute(update(experiments).where(_c.id == experiment_id).values(values))
