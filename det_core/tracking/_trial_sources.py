"""Links from trials to the checkpoints that they use, for example for inference."""

from __future__ import annotations

from sqlalchemy import select

from det_core.tracking._rows import StoreMixin, fence_run
from det_core.tracking._schema import trial_sources

_c = trial_sources.c


class TrialSourcesMixin(StoreMixin):
    """Methods of the tracking store for checkpoints that trials use."""

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
        known = trial_sources.select().where(_c.checkpoint_uuid == checkpoint_uuid, _c.trial_id == trial_id)
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            if connection.execute(known).first() is None:
                values = {**key, "model_id": model_id, "model_version": model_version}
                connection.execute(trial_sources.insert().values(values))

    def trials_using(self, checkpoint_uuid: str) -> list[int]:
        query = select(_c.trial_id).where(_c.checkpoint_uuid == checkpoint_uuid).order_by(_c.trial_id)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())
