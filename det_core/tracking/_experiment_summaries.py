"""Summaries of experiments for lists, which are read from indexes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import BindParameter, Double, and_, case, cast, func, not_, or_, select

from det_core.interfaces.records import (
    ENDINGS,
    CheckpointState,
    ExperimentSummary,
    State,
    Validation,
    configured_slots,
    searcher_metric,
)
from det_core.interfaces.server_store import RungCount, StoreCounts
from det_core.tracking._brief_configs import brief_config, brief_config_column
from det_core.tracking._column_types import time_of, utc_now
from det_core.tracking._rows import LARGE_ROWS, StoreMixin, get_experiment, id_list
from det_core.tracking._schema import checkpoints, deliveries, experiments, metrics, runs, trials
from det_core.tracking._scores import best_of_trials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection, Select

_COUNTED = {"running_trials": State.ACTIVE, "failed_trials": State.ERROR}
"""Numbers of trials in a state."""
_ids: BindParameter[Any] = id_list("ids")
_trials = (
    select(
        trials.c.experiment_id,
        func.count().label("trials"),
        *(func.sum(case((trials.c.state == state, 1), else_=0)).label(name) for name, state in _COUNTED.items()),
    )
    .where(trials.c.experiment_id.in_(_ids))
    .group_by(trials.c.experiment_id)
)
_checkpoints = (
    select(
        trials.c.experiment_id,
        func.count().label("checkpoints"),
        func.sum(cast(checkpoints.c.size, Double)).label("checkpoint_bytes"),  # whole numbers would overflow
    )
    .join_from(
        trials,
        checkpoints,
        and_(checkpoints.c.trial_id == trials.c.id, checkpoints.c.state == CheckpointState.COMPLETED),
    )
    .where(trials.c.experiment_id.in_(_ids))
    .group_by(trials.c.experiment_id)
)
_runs_of_experiments, _runs_of_trials = (
    select(owner, runs.c.start_time, runs.c.end_time, experiments.c.lease_expires)
    .join_from(trials, runs, runs.c.trial_id == trials.c.id)
    .join(experiments, experiments.c.id == trials.c.experiment_id)
    .where(owner.in_(_ids))
    .order_by(runs.c.start_time)
    for owner in (trials.c.experiment_id, trials.c.id)
)
_by_state = {
    table.name: select(table.c.state, func.count().label("number")).group_by(table.c.state)
    for table in (experiments, trials)
}
_validations = select(metrics.c.id, metrics.c.searcher_metric, metrics.c.steps_completed, metrics.c.trial_id).where(
    metrics.c.id.in_(_ids)
)


class _Best(NamedTuple):
    best: Validation | None = None
    best_trial_id: int | None = None


class _Cost(NamedTuple):
    slot_hours: float = 0.0
    uncounted_runs: int = 0


class ExperimentSummariesMixin(StoreMixin):
    """Methods of the tracking store that summarize experiments."""

    def experiment_summaries(self, experiment_ids: Collection[int]) -> dict[int, ExperimentSummary]:
        experiment_ids = list(dict.fromkeys(experiment_ids))
        wanted = {"ids": experiment_ids}
        with self._database.read() as connection:
            configs = self._directions_and_slots(connection, wanted)
            directions = {each: smaller_is_better for each, (smaller_is_better, _) in configs.items()}
            for unknown in (experiment_id for experiment_id in experiment_ids if experiment_id not in directions):
                get_experiment(connection, unknown)  # raises
            trials_of, checkpoints_of = (_counts(connection, query, wanted) for query in (_trials, _checkpoints))
            best_of = _best(connection, directions)
            costs = self._costs(connection, {each: slots for each, (_, slots) in configs.items()})
        none: dict[str, Any] = dict.fromkeys(("trials", *_COUNTED, "checkpoints", "checkpoint_bytes"), 0)
        return {
            each: ExperimentSummary(
                **{**none, **trials_of.get(each, {}), **checkpoints_of.get(each, {})},
                **best_of.get(each, _Best())._asdict(),
                **costs.get(each, _Cost())._asdict(),
            )
            for each in experiment_ids
        }

    def _directions_and_slots(
        self, connection: Connection, wanted: dict[str, Any]
    ) -> dict[int, tuple[bool, int | None]]:
        """Return whether smaller values are better, and the slots of each run, by id of the experiment.

        Few configs are in memory at a time.
        """
        query = select(experiments.c.id, brief_config_column(self._database)).where(experiments.c.id.in_(_ids))
        with connection.execute(query.execution_options(yield_per=LARGE_ROWS), wanted) as rows:
            configs = ((row.id, brief_config(row.config)) for row in rows)
            return {each: (searcher_metric(config)[1], configured_slots(config)) for each, config in configs}

    def _costs(self, connection: Connection, slots_of: Mapping[int, int | None]) -> dict[int, _Cost]:
        """Return the costs of experiments by id. The runs that have recorded no slots have those of the config."""
        from det_core.interfaces.launcher import Phase  # scripts by themselves do not need it

        clock, lease_end, seconds = self._database.clock, experiments.c.lease_expires, self._database.seconds
        end = func.coalesce(seconds(runs.c.end_time), case((lease_end <= clock, lease_end), else_=clock))
        hours, unrecorded = (end - seconds(runs.c.start_time)) / 3600, runs.c.slots.is_(None)
        sums = hours * runs.c.slots, case((unrecorded, hours)), case((unrecorded, 1))
        waits = and_(runs.c.end_time.is_(None), trials.c.placement.startswith(Phase.QUEUED.value))
        query = (
            select(trials.c.experiment_id, *(func.coalesce(func.sum(one), 0) for one in sums))
            .join_from(trials, runs, runs.c.trial_id == trials.c.id)
            .join(experiments, experiments.c.id == trials.c.experiment_id)
            .where(trials.c.experiment_id.in_(_ids), not_(waits))
            .group_by(trials.c.experiment_id)
        )
        return {
            each: _Cost(recorded, number) if slots is None else _Cost(max(recorded + slots * unknown, 0.0))
            for each, recorded, unknown, number in connection.execute(query, {"ids": list(slots_of)})
            for slots in [slots_of[each]]
        }

    def rung_counts(self, experiment_id: int) -> list[RungCount]:
        c = trials.c
        reached = case((and_(c.ordered.is_(None), c.state.not_in((State.ERROR, State.CANCELED))), 1), else_=0)
        query = select(c.searcher_length, func.count(), func.sum(reached))
        of_experiment = query.where(c.experiment_id == experiment_id, c.searcher_length > 0)
        with self._database.read() as connection:
            rows = connection.execute(of_experiment.group_by(c.searcher_length).order_by(c.searcher_length))
            return [RungCount(length=row[0], trials=row[1], reached=int(row[2])) for row in rows]

    def counts(self) -> StoreCounts:
        running = experiments.c.state.in_((State.ACTIVE, *ENDINGS))
        expired = or_(experiments.c.lease_expires.is_(None), experiments.c.lease_expires <= self._database.clock)
        with self._database.read() as connection:
            by_state = {
                table: {State(row.state): row.number for row in connection.execute(query)}
                for table, query in _by_state.items()
            }
            lost = connection.execute(select(func.count()).select_from(experiments).where(running, expired))
            events = connection.execute(select(func.count()).select_from(deliveries))
            return StoreCounts(**by_state, without_runner=lost.scalar_one(), webhook_events=events.scalar_one())

    def running_seconds(self, experiment_ids: Collection[int]) -> dict[int, float]:
        return self._running_seconds(_runs_of_experiments, experiment_ids)

    def trial_running_seconds(self, trial_ids: Collection[int]) -> dict[int, float]:
        return self._running_seconds(_runs_of_trials, trial_ids)

    def _running_seconds(self, query: Select[Any], ids: Collection[int]) -> dict[int, float]:
        """Return the seconds that the runs of each owner cover. The query selects the runs by the ids of owners."""
        intervals: dict[int, list[tuple[datetime, datetime]]] = {each: [] for each in ids}
        with self._database.read() as connection:
            now = connection.execute(select(self._database.clock)).scalar_one()
            for owner, start, end, lease_end in connection.execute(query, {"ids": list(ids)}):
                is_lost = lease_end is not None and lease_end <= now
                intervals[owner].append((start, end or (time_of(lease_end) if is_lost else utc_now())))
        return {each: _covered_seconds(found) for each, found in intervals.items()}


def _covered_seconds(intervals: Iterable[tuple[datetime, datetime]]) -> float:
    """Return the length of the union of intervals, which are sorted by their starts."""
    seconds, reached = 0.0, datetime.min.replace(tzinfo=timezone.utc)
    for start, end in intervals:
        seconds += max((end - max(start, reached)).total_seconds(), 0.0)
        reached = max(reached, end)
    return seconds


def _counts(connection: Connection, query: Select[Any], wanted: dict[str, Any]) -> Mapping[int, Mapping[str, int]]:
    rows = connection.execute(query, wanted)
    # PostgreSQL returns sums as decimals.
    return {row[0]: dict(zip(list(rows.keys())[1:], map(int, row[1:]), strict=True)) for row in rows}


def _best(connection: Connection, directions: Mapping[int, bool]) -> Mapping[int, _Best]:
    found = {}
    for smaller_is_better, query in _BEST.items():
        ids = [each for each, direction in directions.items() if direction is smaller_is_better]
        best = {row.best: row.id for row in connection.execute(query, {"ids": ids}) if row.best} if ids else {}
        # A join of both queries would let PostgreSQL read all metrics.
        for row in connection.execute(_validations, {"ids": list(best)}) if best else ():
            found[best[row.id]] = _Best(
                Validation(value=row.searcher_metric, steps_completed=row.steps_completed), row.trial_id
            )
    return found


def _select_best(smaller_is_better: bool) -> Select[Any]:
    """Select the id of the best validation of each experiment, or NULL."""
    of_experiment = trials.c.experiment_id == experiments.c.id
    best = best_of_trials(of_experiment, smaller_is_better=smaller_is_better)
    row = best.with_only_columns(best.exported_columns.id).limit(1).correlate(experiments).scalar_subquery()
    return select(experiments.c.id, row.label("best")).where(experiments.c.id.in_(_ids))


_BEST = {smaller_is_better: _select_best(smaller_is_better) for smaller_is_better in (True, False)}
