"""Newest values of metrics, and since when they are NaN or infinite. Each trial is looked up in an index."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, bindparam, false, func, or_, select

from det_core.errors import UnwritableText
from det_core.interfaces.records import require_writable
from det_core.json_values import NON_FINITE
from det_core.tracking._rows import StoreMixin, id_list
from det_core.tracking._schema import metrics, trials

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import ColumnElement, FromClause, Select

    _Value = Callable[[FromClause, str], ColumnElement[Any]]

_AT_ONCE = 1000
"""Maximum number of trials in a query, because databases limit the number of parameters."""
_LAST_REPORTS = 100
"""Number of reports among which the newest value of a metric is looked for."""
_KEPT = 32
"""Number of metrics whose queries are kept."""
_ids: BindParameter[Any] = bindparam("ids", expanding=True)


class DivergencesMixin(StoreMixin):
    """Methods of the tracking store for the newest values of metrics."""

    def latest_values(self, trial_ids: Collection[int], metric: str, *, group: str) -> dict[int, tuple[int, float]]:
        require_writable(metric)
        row = metrics.alias()
        number = self._database.number(row, metric)
        newest_first = _rows_of_trial(row).order_by(row.c.steps_completed.desc()).limit(1)
        of_trials = select(trials.c.id, _among_last(newest_first, row, number.is_not(None)).scalar_subquery())
        values = select(row.c.trial_id, row.c.steps_completed, number).where(row.c.id.in_(id_list("ids")))
        found: dict[int, tuple[int, float]] = {}
        remaining = iter(trial_ids)
        with self._database.read() as connection:
            while some := list(islice(remaining, _AT_ONCE)):
                rows = connection.execute(of_trials.where(trials.c.id.in_(_ids)), {"ids": some, "of_group": group})
                ids = [row_id for _, row_id in rows if row_id is not None]
                for trial_id, step, value in connection.execute(values, {"ids": ids}) if ids else ():
                    found[trial_id] = (step, float(value))
        return found

    def divergences(self, trial_ids: Collection[int], metric: str, *, group: str) -> dict[int, tuple[int, float]]:
        try:
            require_writable(metric)
        except UnwritableText:  # a name that no report has
            return {}
        begun, of_rows = _queries(self._database.number, self._database.non_finite, metric)
        found: dict[int, tuple[int, float]] = {}
        remaining = iter(trial_ids)
        with self._database.read() as connection:
            while some := list(islice(remaining, _AT_ONCE)):
                rows = connection.scalars(begun, {"ids": some, "of_group": group}).all()
                # A join of both queries would let PostgreSQL read all metrics.
                for trial_id, step, name in connection.execute(of_rows, {"ids": rows}) if rows else ():
                    found[trial_id] = (step, NON_FINITE[name])
        return found


@lru_cache(_KEPT)
def _queries(number: _Value, non_finite: _Value, metric: str) -> tuple[Select[Any], Select[Any]]:
    """Return the two queries, which cost more than their execution, and which open pages repeat every second.

    The first selects the id of the first row after the last finite number, for trials whose newest value is none. The
    second selects the trial, the step and the value of rows.

    Args:
        number: the method of the database.
        non_finite: the method of the database.
        metric: name of the metric, which may be missing in some rows.
    """
    newest, last, first = (metrics.alias(name) for name in ("newest", "last", "first"))

    backwards = _rows_of_trial(newest).order_by(newest.c.steps_completed.desc()).limit(1)
    name = non_finite(newest, metric)
    has_it = or_(name.is_not(None), number(newest, metric).is_not(None))
    newest_name = _among_last(backwards, newest, has_it).with_only_columns(name)

    step = last.c.steps_completed
    numbers = _rows_of_trial(last).where(number(last, metric).is_not(None))
    last_number = numbers.with_only_columns(step).order_by(step.desc()).limit(1).scalar_subquery()

    step = first.c.steps_completed
    after = _rows_of_trial(first).where(step > func.coalesce(last_number, -1), non_finite(first, metric).is_not(None))
    query = select(after.order_by(step).limit(1).scalar_subquery())
    begun = query.where(trials.c.id.in_(_ids), newest_name.scalar_subquery().is_not(None))

    c = metrics.c
    return begun, select(c.trial_id, c.steps_completed, non_finite(metrics, metric)).where(c.id.in_(_ids))


def _among_last(newest_first: Select[Any], of: Any, has_it: ColumnElement[bool]) -> Select[Any]:
    """Select the newest row of a trial with a metric, if it is among the last rows."""
    step = of.c.steps_completed
    before = newest_first.with_only_columns(step).offset(_LAST_REPORTS).scalar_subquery()
    return newest_first.where(step > func.coalesce(before, -1), has_it)


def _rows_of_trial(of: Any) -> Select[Any]:
    """Select the ids of the rows of a trial in a group."""
    wanted = (of.c.trial_id == trials.c.id, of.c.archived == false(), of.c.group == bindparam("of_group"))
    return select(of.c.id).where(*wanted).correlate(trials)
