"""Deletion of experiments, with several transactions for large tables."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, update

from det_core.errors import ExperimentBusy, RecordInUse
from det_core.tracking._rows import StoreMixin, get_experiment, lock_experiment
from det_core.tracking._schema import (
    checkpoints,
    code_versions,
    experiments,
    logs,
    machines,
    metrics,
    model_versions,
    models,
    runs,
    search_events,
    search_snapshots,
    system_metrics,
    trial_sources,
    trials,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LONG = (metrics, system_metrics, logs)
_PIECE = 10_000
"""Maximum number of rows that one transaction deletes, so that other writers do not wait long."""


class ExperimentDeletionMixin(StoreMixin):
    """Methods of the tracking store that delete experiments."""

    def delete_experiment(self, experiment_id: int, *, lease: str = "") -> None:
        of_experiment = select(trials.c.id).where(trials.c.experiment_id == experiment_id)
        with self._database.read() as connection:
            self._refuse_needed(connection, experiment_id, lease)
        for table in _LONG:
            piece = select(table.c.id).where(table.c.trial_id.in_(of_experiment)).limit(_PIECE)
            left = _PIECE
            while left == _PIECE:
                with self._database.write() as connection:
                    left = connection.execute(delete(table).where(table.c.id.in_(piece))).rowcount
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id, lease)
            self._refuse_needed(connection, experiment_id, lease)
            for table in (*_LONG, trial_sources, checkpoints, machines, runs):
                connection.execute(delete(table).where(table.c.trial_id.in_(of_experiment)))
            for table in (search_events, search_snapshots, code_versions, trials):
                connection.execute(delete(table).where(table.c.experiment_id == experiment_id))
            forked = experiments.c.forked_from == experiment_id
            connection.execute(update(experiments).where(forked).values(forked_from=None))
            connection.execute(delete(experiments).where(experiments.c.id == experiment_id))

    def _refuse_needed(self, connection: Connection, experiment_id: int, lease: str) -> None:
        get_experiment(connection, experiment_id)
        running = select(experiments.c.lease_holder).where(
            experiments.c.id == experiment_id, experiments.c.lease_expires > self._database.clock
        )
        holder = connection.execute(running).scalar_one_or_none()
        if holder and holder != lease:
            raise ExperimentBusy(f"experiment {experiment_id} is being run by {holder}")
        registered = connection.execute(
            select(models.c.name, model_versions.c.version)
            .join_from(models, model_versions)
            .join(checkpoints, checkpoints.c.uuid == model_versions.c.checkpoint_uuid)
            .join(trials)
            .where(trials.c.experiment_id == experiment_id)
        ).all()
        if registered:
            versions = ", ".join(f"version {row.version} of model {row.name!r}" for row in registered)
            first = f"det model delete-version {shlex.quote(registered[0].name)} {registered[0].version}"
            raise RecordInUse(
                f"experiment {experiment_id} has checkpoints that are {versions}, so it cannot be deleted; "
                f"first: {first}"
            )
