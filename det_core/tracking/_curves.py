"""Curves of metrics, which are downsampled in SQL so that long ones are quick to draw."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, BindParameter, ColumnElement, ScalarSelect, bindparam, false, select, union

from det_core.interfaces.records import MAX_STEPS, require_writable
from det_core.tracking._rows import StoreMixin, get_trial
from det_core.tracking._schema import metrics, trials
from det_core.tracking.reading_limits import count_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Select

_POINT = 200
"""Number of characters that a point counts as, because it takes that much memory."""
_AT_ONCE = 1000
"""Maximum number of trials in a query, because databases limit the number of parameters."""

_point, _candidate = metrics.alias("point"), metrics.alias("candidate")
_step = _candidate.c.steps_completed
_trials: BindParameter[Any] = bindparam("trials", expanding=True)
_points = bindparam("points", type_=BigInteger)


def _wanted(of: Any) -> tuple[ColumnElement[bool], ...]:
    after, until = (bindparam(name, type_=BigInteger) for name in ("after", "until"))
    is_within = (of.c.steps_completed > after, of.c.steps_completed <= until)
    return of.c.archived == false(), of.c.group == bindparam("of_group"), *is_within


_steps = select(_step).where(_candidate.c.trial_id == trials.c.id, *_wanted(_candidate)).limit(1).correlate(trials)
_first_step = _steps.order_by(_step).scalar_subquery()
_last_step = _steps.order_by(_step.desc()).scalar_subquery()
_one_too_many = _steps.order_by(_step).offset(_points).scalar_subquery()
_lengths = select(trials.c.id, _one_too_many.is_not(None).label("is_long")).where(trials.c.id.in_(_trials))


class CurvesMixin(StoreMixin):
    """Methods of the tracking store for curves of metrics."""

    def curves(
        self,
        trial_ids: Collection[int],
        metric: str,
        *,
        group: str,
        points: int = 1000,
        extremes: bool = False,
        after: int = -1,
        until: int = MAX_STEPS,
    ) -> dict[int, list[tuple[int, float]]]:
        if points < 1:
            raise ValueError(f"points is {points}; expected at least 1")
        require_writable(metric)
        found: dict[int, list[tuple[int, float]]] = {trial_id: [] for trial_id in trial_ids}
        of_long = self._extremes(metric) if extremes else self._sampled(metric)
        remaining = iter(found)
        with self._database.read() as connection:

            def add(query: Select[Any], some: Sequence[int]) -> None:
                if some:
                    _add(found, self._database.curves(connection, query, {**wanted, "trials": some}))

            wanted = {"of_group": group, "points": points, "after": after, "until": until}
            while some := list(islice(remaining, _AT_ONCE)):
                is_long = {row.id: row.is_long for row in connection.execute(_lengths, {**wanted, "trials": some})}
                for unknown in (trial_id for trial_id in some if trial_id not in is_long):
                    get_trial(connection, unknown)  # raises
                short, long = ([trial_id for trial_id in some if is_long[trial_id] is which] for which in (False, True))
                add(self._every(metric), short)
                add(of_long, long)
                add(self._last(metric), [trial_id for trial_id in long if found[trial_id]])
        return found

    def _every(self, metric: str) -> Select[Any]:
        """Select all rows of trials, including rows without the metric."""
        of_trials = select(*self._columns(metric)).where(_point.c.trial_id.in_(_trials), *_wanted(_point))
        return of_trials.order_by(_point.c.trial_id, _point.c.steps_completed)

    def _extremes(self, metric: str) -> Select[Any]:
        """Select the first row with the metric, and the rows with its least and greatest value in each interval."""
        stride = (_last_step - _first_step + _points - 1) // _points
        spans = select(trials.c.id, _first_step.label("first"), _last_step.label("last"), stride.label("stride"))
        interval = spans.where(trials.c.id.in_(_trials)).cte("interval", recursive=True)
        end = interval.c.first + interval.c.stride
        interval = interval.union_all(
            select(interval.c.id, end, interval.c.last, interval.c.stride).where(end <= interval.c.last)
        )
        within = (
            _candidate.c.trial_id == interval.c.id,
            _step >= interval.c.first,
            _step < interval.c.first + interval.c.stride,
            *_wanted(_candidate),
        )
        number = self._database.number(_candidate, metric)
        rows = select(_candidate.c.id).where(*within).limit(1).correlate(interval)
        least, greatest = (
            select(rows.order_by(value.nulls_last(), _step).scalar_subquery()) for value in (number, number.desc())
        )
        first = select(self._nearest(metric, trials, _step, _candidate.c.trial_id == trials.c.id)).where(
            trials.c.id.in_(_trials)
        )
        chosen = union(first, least.select_from(interval), greatest.select_from(interval))
        query = select(*self._columns(metric)).where(_point.c.id.in_(chosen))
        return query.order_by(_point.c.trial_id, _point.c.steps_completed)

    def _sampled(self, metric: str) -> Select[Any]:
        """Select the first row with the metric, then repeatedly the first one at least ``stride`` steps later.

        The cost of walking along the index is proportional to the size of the sample. Extremes require a scan of all
        rows.
        """
        stride = (_last_step - _point.c.steps_completed + _points - 1) // _points
        first = self._of_trials(metric, _step, stride.label("stride"))
        walk = first.cte("walk", recursive=True)
        here = walk.c.steps_completed
        later = (_step > here, _step >= here + walk.c.stride)  # the stride is 0 if only the last row has the metric
        following = self._nearest(metric, walk, _step, _candidate.c.trial_id == walk.c.trial_id, *later)
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
        rows = select(_candidate.c.id).where(*where, *_wanted(_candidate), has_it)
        return rows.order_by(order).limit(1).correlate(to).scalar_subquery()

    def _columns(self, metric: str) -> tuple[ColumnElement[Any], ...]:
        value = self._database.number(_point, metric).label("value")
        return _point.c.trial_id, _point.c.steps_completed, value


def _add(found: dict[int, list[tuple[int, float]]], rows: Iterable[Any]) -> None:
    for trial_id, step, value in rows:
        curve = found[trial_id]
        count_read(_POINT)
        if value is not None and not (curve and step == curve[-1][0]):
            curve.append((step, float(value)))
