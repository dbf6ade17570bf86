"""Queries by the searcher's metric, for the best and latest value of each trial and the values of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, func, select, true

from det_core.interfaces.records import (
    CheckpointRecord,
    CheckpointState,
    ScoredCheckpoint,
    State,
    TrialOrder,
    TrialRecord,
    TrialResult,
    Validation,
    searcher_metric,
)
from det_core.tracking._filters import TrialValues, limited
from det_core.tracking._rows import (
    LARGE_ROWS,
    StoreMixin,
    brief_column,
    brief_trial,
    brief_trial_columns,
    get_experiment,
    get_trial,
    id_list,
    record_columns,
)
from det_core.tracking._schema import archived, checkpoints, live, metrics, scored, trials

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sqlalchemy import Select

VALIDATION = "validation"
"""Metrics group that contains the searcher's metric."""

_c = metrics.c
_best, _latest, _validated = (metrics.alias(name) for name in ("best", "latest", "validated"))


class ScoresMixin(StoreMixin):
    """Methods of the tracking store that rank trials and checkpoints."""

    def trial_results(
        self,
        experiment_id: int,
        *,
        trial_ids: Collection[int] | None = None,
        states: Sequence[State] = (),
        where: str = "",
        order: TrialOrder = TrialOrder.ID,
        sort_by: str = "",
        reverse: bool = False,
        limit: int | None = None,
        offset: int = 0,
        brief: bool = False,
    ) -> list[TrialResult]:
        values = TrialValues(self._database)
        conditions = [
            trials.c.experiment_id == experiment_id,
            true() if trial_ids is None else trials.c.id.in_(id_list(None, list(trial_ids))),
            trials.c.state.in_(states) if states else true(),
            values.matches(where) if where else true(),
        ]
        with self._database.read() as connection, limited(self._database, connection, where or sort_by):
            _, smaller_is_better = searcher_metric(get_experiment(connection, experiment_id).config)
            by = _sorted(order, descending=_descends(order, smaller_is_better) is not reverse)
            if sort_by:
                values.require_value(connection, sort_by, trials.c.experiment_id == experiment_id)
                by = [*values.order(sort_by, reverse=reverse), trials.c.id]
                page = select(trials.c.id).where(*conditions).order_by(*by).limit(limit).offset(offset)
                conditions, limit, offset = [trials.c.id.in_(page)], None, 0  # validations of all would be slow to join
            query = (
                select(
                    *(brief_trial_columns() if brief else record_columns(trials, TrialRecord)),
                    *_named(_best, "best"),
                    *_named(_latest, "latest"),
                )
                .outerjoin_from(trials, _best, _best.c.id == _row_of_trial(_by_value(smaller_is_better)))
                .outerjoin(_latest, _latest.c.id == _row_of_trial(_c.steps_completed.desc()))
                .where(*conditions)
                .order_by(*by)
            )
            page = query.limit(limit).offset(offset).execution_options(yield_per=LARGE_ROWS)
            with connection.execute(page) as rows:
                return [_result(brief_trial if brief else TrialRecord, dict(row)) for row in rows.mappings()]

    def count_trials(self, experiment_id: int, *, where: str = "") -> int:
        wanted = TrialValues(self._database).matches(where) if where else true()
        query = select(func.count()).select_from(trials).where(trials.c.experiment_id == experiment_id, wanted)
        with self._database.read() as connection, limited(self._database, connection, where):
            get_experiment(connection, experiment_id)
            return int(connection.execute(query).scalar_one())

    def values_of_trials(self, trial_ids: Collection[int], names: Sequence[str]) -> dict[int, list[float | str | None]]:
        values = TrialValues(self._database)
        columns = [column for name in names for column in values.columns(name)]
        query = select(trials.c.id, *columns).where(trials.c.id.in_(id_list(None, list(trial_ids))))
        with self._database.read() as connection, limited(self._database, connection, " ".join(names)):
            rows = connection.execute(query).all()
        return {
            row[0]: [text if number is None else number for number, text in zip(row[1::2], row[2::2], strict=True)]
            for row in rows
        }

    def scored_checkpoints(
        self,
        experiment_id: int,
        *,
        trial_id: int | None = None,
        states: Sequence[CheckpointState] = (CheckpointState.COMPLETED,),
        limit: int | None = None,
        brief: bool = False,
    ) -> list[ScoredCheckpoint]:
        c, columns = checkpoints.c, record_columns(checkpoints, CheckpointRecord)
        value = _validated.c.searcher_metric
        wanted = (
            trials.c.experiment_id == experiment_id,
            true() if trial_id is None else c.trial_id == trial_id,
            c.state.in_(states),
        )
        with self._database.read() as connection:
            _, smaller_is_better = searcher_metric(get_experiment(connection, experiment_id).config)
            if trial_id is not None:
                get_trial(connection, trial_id)
            query = (
                select(*map(brief_column, columns) if brief else columns, c.size, value.label("value"))
                .join_from(checkpoints, trials)
                .outerjoin(_validated, _validated.c.id == validation_of_checkpoint())
                .where(*wanted)
                .order_by(value.is_(None), _by_value(smaller_is_better, _validated), c.id)
            )
            with connection.execute(query.limit(limit).execution_options(yield_per=LARGE_ROWS)) as rows:
                return [_scored(dict(row)) for row in rows.mappings()]


def best_of_trials(wanted: ColumnElement[bool], *, smaller_is_better: bool) -> Select[Any]:
    """Return a query for the best (id, value, trial_id, steps_completed) of each wanted trial, best trial first."""
    return (
        select(_best.c.id, _best.c.searcher_metric.label("value"), _best.c.trial_id, _best.c.steps_completed)
        .join_from(trials, _best, _best.c.id == _row_of_trial(_by_value(smaller_is_better)))
        .where(wanted)
        .order_by(_by_value(smaller_is_better, _best), _best.c.id)
    )


def validation_of_checkpoint() -> ColumnElement[int]:
    """Return an SQL expression for the id of a checkpoint's validation, which is the first at its batch since its run.

    Later runs may have archived it, but the checkpoint has not changed. If there is none, it is that of an older run.
    """
    c = checkpoints.c
    at_its_batch = (_c.trial_id == c.trial_id, _c.steps_completed == c.steps_completed, _c.group == VALIDATION)
    rows = select(_c.id).where(*at_its_batch).order_by(_c.run_id).limit(1).correlate(checkpoints)
    since, current = rows.where(archived, _c.run_id >= c.run_id), rows.where(live)
    return func.coalesce(since.scalar_subquery(), current.scalar_subquery())


def _row_of_trial(order: ColumnElement[Any]) -> ColumnElement[int]:
    """Return an SQL expression for the id of a trial's first validation in this order, which is one index lookup."""
    of_trial = select(_c.id).where(_c.trial_id == trials.c.id, scored)
    return of_trial.order_by(order, _c.id).limit(1).correlate(trials).scalar_subquery()


def _by_value(smaller_is_better: bool, of: Any = metrics) -> ColumnElement[Any]:
    value: ColumnElement[Any] = of.c.searcher_metric
    return value.asc() if smaller_is_better else value.desc()


def _descends(order: TrialOrder, smaller_is_better: bool) -> bool:
    return order is TrialOrder.BATCHES or (order is not TrialOrder.ID and not smaller_is_better)


def _sorted(order: TrialOrder, *, descending: bool) -> list[ColumnElement[Any]]:
    column = {
        TrialOrder.ID: trials.c.id,
        TrialOrder.BEST: _best.c.searcher_metric,
        TrialOrder.LATEST: _latest.c.searcher_metric,
        TrialOrder.BATCHES: trials.c.steps_completed,
    }[order]
    return [column.is_(None), column.desc() if descending else column.asc(), trials.c.id]


def _named(of: Any, name: str) -> list[ColumnElement[Any]]:
    return [of.c.searcher_metric.label(f"{name}_value"), of.c.steps_completed.label(f"{name}_step")]


def _result(make: Callable[..., TrialRecord], values: dict[str, Any]) -> TrialResult:
    best, latest = (_validation(values.pop(f"{name}_value"), values.pop(f"{name}_step")) for name in ("best", "latest"))
    return TrialResult(trial=make(**values), best=best, latest=latest)


def _validation(value: float | None, step: int | None) -> Validation | None:
    return None if value is None or step is None else Validation(value=value, steps_completed=step)


def _scored(values: dict[str, Any]) -> ScoredCheckpoint:
    value, size = values.pop("value"), values.pop("size")
    return ScoredCheckpoint(checkpoint=CheckpointRecord(**values), value=value, size=size)
