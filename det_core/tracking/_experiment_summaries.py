"""Summaries of experiments for lists, which are read from indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, case, func, select

from det_core.interfaces.records import CheckpointState, ExperimentSummary, State, Validation, searcher_metric
from det_core.tracking._rows import StoreMixin, get_experiment
from det_core.tracking._schema import checkpoints, trials
from det_core.tracking._scores import best_of_trials

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection


class ExperimentSummariesMixin(StoreMixin):
    """Methods of the tracking store that summarize experiments."""

    def experiment_summaries(self, experiment_ids: Collection[int]) -> dict[int, ExperimentSummary]:
        with self._database.read() as connection:
            return {experiment_id: _summary(connection, experiment_id) for experiment_id in experiment_ids}


def _summary(connection: Connection, experiment_id: int) -> ExperimentSummary:
    of_experiment = trials.c.experiment_id == experiment_id
    _, smaller_is_better = searcher_metric(get_experiment(connection, experiment_id).config)
    running = func.coalesce(func.sum(case((trials.c.state == State.ACTIVE, 1), else_=0)), 0)
    count, running_count = connection.execute(select(func.count(), running).where(of_experiment)).one()
    completed = and_(checkpoints.c.trial_id == trials.c.id, checkpoints.c.state == CheckpointState.COMPLETED)
    sizes = select(func.count(), func.coalesce(func.sum(checkpoints.c.size), 0)).join_from(
        trials, checkpoints, completed
    )
    saved, size = connection.execute(sizes.where(of_experiment)).one()
    best = connection.execute(best_of_trials(of_experiment, smaller_is_better=smaller_is_better).limit(1)).one_or_none()
    return ExperimentSummary(
        trials=count,
        running_trials=running_count,
        checkpoints=saved,
        checkpoint_bytes=int(size),
        best=None if best is None else Validation(value=best.value, steps_completed=best.steps_completed),
        best_trial_id=None if best is None else best.trial_id,
    )
