"""Curves of metrics, which are downsampled in SQL so that long ones are quick to draw."""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, BindParameter, ColumnElement, ScalarSelect, bindparam, false, select

from det_core.tracking._rows import StoreMixin, get_trial
from det_core.tracking._schema import metrics, trials

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Select

_AT_ONCE = 1000
"""Maximum number of trials in a query, because databases limit the number of parameters."""
_PAGE = 5000
"""Number of rows that are in memory at the same time."""

_point, _candidate = metrics.alias("point"), metrics.alias("candidate")
_step = _candidate.c.steps_completed
_trials: BindParameter[Any] = bindparam("trials", expanding=True)
_points = bindparam("points", type_=BigInteger)


def _in_group(of: Any) -> tuple[ColumnElement[bool], ...]:
    return of.c.archived == false(), of.c.group == bindparam("of_group")


_steps = select(_step).where(_candidate.c.trial_id == trials.c.id, *_in_group(_candidate)).limit(1).correlate(trials)
_first_step = _steps.order_by(_step).scalar_subquery()
_last_step = _steps.order_by(_step.desc()).scalar_subquery()
_one_too_many = _steps.order_by(_step).offset(_points).scalar_subquery()
_spans = select(
    trials.c.id, _first_step.label("first"), ((_last_step - _first_step + _points - 1) // _points).label("stride")
).where(trials.c.id.in_(_trials))
_lengths = select(trials.c.id, _one_too_many.is_not(None).label("is_long")).where(trials.c.id.in_(_trials))


class CurvesMixin(StoreMixin):
    """Methods of the tracking store for curves of metrics."""

    def curves(
        self, trial_ids: Collection[int], metric: str, *, group: str, points: int = 1000, extremes: bool = False
    ) -> dict[int, list[tuple[int, float]]]:
        if points < 1:
            raise ValueError(f"points is {points}; expected at least 1")
        found: dict[int, list[tuple[int, float]]] = {trial_id: [] for trial_id in trial_ids}
        every, sampled, last = self._every(metric), self._sampled(metric), self._last(metric)
        remaining = iter(found)
        with self._database.read() as connection:

            def execute(query: Select[Any], some: Sequence[int]) -> Iterable[Any]:
                whose = {"trials": some, "of_group": group, "points": points}
                return connection.execute(query, whose) if some else ()

            while some := list(islice(remaining, _AT_ONCE)):
                is_long = {row.id: row.is_long for row in execute(_lengths, some)}
                for unknown in (trial_id for trial_id in some if trial_id not in is_long):
                    get_trial(connection, unknown)  # raises
                short, long = ([trial_id for trial_id in some if is_long[trial_id] is which] for which in (False, True))
                _add(found, execute(every, short))
                if extremes:
                    spans = {row.id: (row.first, row.stride) for row in execute(_spans, long)}
                    _add(found, _extremes(execute(every, long), spans))
                else:
                    _add(found, execute(sampled, long))
                    _add(found, execute(last, [trial_id for trial_id in long if found[trial_id]]))
        return found

    def _every(self, metric: str) -> Select[Any]:
        """Select all rows of trials, including rows without the metric."""
        of_trials = select(*self._columns(metric)).where(_point.c.trial_id.in_(_trials), *_in_group(_point))
        in_order = of_trials.order_by(_point.c.trial_id, _point.c.steps_completed)
        return in_order.execution_options(yield_per=_PAGE)

    def _sampled(self, metric: str) -> Select[Any]:
        """Select the first row with the metric, then repeatedly the first one at least ``stride`` steps later.

        The cost of walking along the index is proportional to the size of the sample. Minima and maxima would require
        a scan of all rows.
        """
        stride = (_last_step - _point.c.steps_completed + _points - 1) // _points
        first = self._of_trials(metric, _step, stride.label("stride"))
        walk = first.cte("walk", recursive=True)
        later = _step >= walk.c.steps_completed + walk.c.stride
        following = self._nearest(metric, walk, _step, _candidate.c.trial_id == walk.c.trial_id, later)
        walk = walk.union_all(
            select(*self._columns(metric), walk.c.stride).join_from(walk, _point, _point.c.id == following)
        )
        return select(walk.c.trial_id, walk.c.steps_completed, walk.c.value).order_by(walk.c.steps_completed)

    def _last(self, metric: str) -> Select[Any]:
        """Select the last row of trials with the metric."""
        return self._of_trials(metric, _step.desc())

    def _of_trials(self, metric: str, order: ColumnElement[Any], *more: ColumnElement[Any]) -> Select[Any]:
        nearest = self._nearest(metric, trials, order, _candidate.c.trial_id == trials.c.id)
        query = select(*self._columns(metric), *more).join_from(trials, _point, _point.c.id == nearest)
        return query.where(trials.c.id.in_(_trials))

    def _nearest(
        self, metric: str, to: Any, order: ColumnElement[Any], *where: ColumnElement[bool]
    ) -> ScalarSelect[int]:
        """Select the id of the first row with the metric in that order, found by an index."""
        has_it = self._database.number(_candidate, metric).is_not(None)
        rows = select(_candidate.c.id).where(*where, *_in_group(_candidate), has_it)
        return rows.order_by(order).limit(1).correlate(to).scalar_subquery()

    def _columns(self, metric: str) -> tuple[ColumnElement[Any], ...]:
        value = self._database.number(_point, metric).label("value")
        return _point.c.trial_id, _point.c.steps_completed, value


def _extremes(rows: Iterable[Any], spans: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int, float]]:
    """Yield the first and the last row of each trial, and those with the least and the greatest value of each interval.

    SQL finds the same, but databases sort the rows for it, which takes longer than this loop.

    Args:
        rows: trial, step and value of all rows, by trial and step.
        spans: the first step of each trial, and the number of steps of an interval.
    """
    for trial_id, of_trial in groupby(rows, key=itemgetter(0)):
        first, stride = spans[trial_id]
        last = None
        for _, of_interval in groupby(of_trial, key=lambda row: (row[1] - first) // stride):
            if values := [row for row in of_interval if row[2] is not None]:
                extremes = min(values, key=itemgetter(2)), max(values, key=itemgetter(2))
                yield from values[:1] if last is None else ()
                yield from sorted(extremes, key=itemgetter(1))
                last = values[-1]
        if last is not None:
            yield last


def _add(found: dict[int, list[tuple[int, float]]], rows: Iterable[Any]) -> None:
    for trial_id, step, value in rows:
        curve = found[trial_id]
        if value is not None and not (curve and step == curve[-1][0]):
            curve.append((step, float(value)))
