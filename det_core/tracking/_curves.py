"""Curves of metrics, which are downsampled in SQL so that long ones are quick to draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    ScalarSelect,
    bindparam,
    case,
    false,
    null,
    or_,
    select,
    union,
)

from det_core.errors import CallTooLarge
from det_core.interfaces.records import LONGEST_NAME, MAX_STEPS, require_writable
from det_core.tracking._rows import StoreMixin, get_trial
from det_core.tracking._schema import metrics, trials
from det_core.tracking.reading_limits import count_read

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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


@dataclass(frozen=True)
class _Values:
    """SQL expressions for the values of curves, given an alias of the table of metrics.

    Args:
        number: number, or NULL.
        name: name in `NON_FINITE` of a value that is no finite number, or None to leave such values out.
    """

    number: Callable[[Any], ColumnElement[Any]]
    name: Callable[[Any], ColumnElement[Any]] | None = None

    def columns(self) -> tuple[ColumnElement[Any], ...]:
        """Return the columns that `Database.curves` reads."""
        name = null() if self.name is None else self.name(_point)
        return _point.c.trial_id, _point.c.steps_completed, self.number(_point).label("value"), name.label("name")

    def is_there(self, of: Any) -> ColumnElement[bool]:
        """Return a condition for rows with a value."""
        has_number = self.number(of).is_not(None)
        return has_number if self.name is None else or_(has_number, self.name(of).is_not(None))


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
        non_finite: bool = False,
    ) -> dict[int, list[tuple[int, float]]]:
        require_writable(metric)
        if len(metric) > LONGEST_NAME:
            raise CallTooLarge(
                f"the metric {metric[:40]!r}… has {len(metric)} characters; at most {LONGEST_NAME} have curves"
            )
        number, name = (partial(one, metric=metric) for one in (self._database.number, self._database.non_finite))
        values = _Values(number, name if non_finite else None)
        of_long = _extremes(values) if extremes else _sampled(values)
        return self._read_curves(trial_ids, values, of_long, of_group=group, points=points, after=after, until=until)

    def report_times(
        self, trial_ids: Collection[int], *, group: str, points: int = 1000, after: int = -1, until: int = MAX_STEPS
    ) -> dict[int, list[tuple[int, float]]]:
        values = _Values(lambda of: self._database.seconds(of.c.time))
        wanted = {"of_group": group, "points": points, "after": after, "until": until}
        return self._read_curves(trial_ids, values, _sampled(values), **wanted)

    def _read_curves(
        self, trial_ids: Collection[int], values: _Values, of_long: Select[Any], **wanted: Any
    ) -> dict[int, list[tuple[int, float]]]:
        """Return the values of trials by step, all of short curves and those that a query selects of long ones."""
        if wanted["points"] < 1:
            raise ValueError(f"points is {wanted['points']}; expected at least 1")
        found: dict[int, list[tuple[int, float]]] = {trial_id: [] for trial_id in trial_ids}
        remaining = iter(found)
        with self._database.read() as connection:

            def add(query: Select[Any], some: Sequence[int]) -> None:
                if some:
                    for trial_id, step, value in self._database.curves(connection, query, {**wanted, "trials": some}):
                        curve = found[trial_id]
                        count_read(_POINT)
                        if value is not None and not (curve and step == curve[-1][0]):
                            curve.append((step, value))

            while some := list(islice(remaining, _AT_ONCE)):
                is_long = {row.id: row.is_long for row in connection.execute(_lengths, {**wanted, "trials": some})}
                for unknown in (trial_id for trial_id in some if trial_id not in is_long):
                    get_trial(connection, unknown)  # raises
                short, long = ([trial_id for trial_id in some if is_long[trial_id] is which] for which in (False, True))
                add(_every(values), short)
                add(of_long, long)
                add(_last(values), [trial_id for trial_id in long if found[trial_id]])
        return found


def _every(values: _Values) -> Select[Any]:
    """Select all rows of trials, including rows without a value."""
    of_trials = select(*values.columns()).where(_point.c.trial_id.in_(_trials), *_wanted(_point))
    return of_trials.order_by(_point.c.trial_id, _point.c.steps_completed)


def _extremes(values: _Values) -> Select[Any]:
    """Select the first row with a value, and of each interval the least, the greatest and the first non-finite one."""
    stride = _stride(_first_step)
    spans = select(trials.c.id, _first_step.label("first"), _last_step.label("last"), stride.label("stride"))
    interval = spans.where(trials.c.id.in_(_trials)).cte("interval", recursive=True)
    following = select(interval.c.id, interval.c.first + interval.c.stride, interval.c.last, interval.c.stride)
    interval = interval.union_all(following.where(interval.c.first <= interval.c.last - interval.c.stride))
    within = (
        _candidate.c.trial_id == interval.c.id,
        _step >= interval.c.first,
        _step <= _later_step(interval.c.first, interval.c.stride - 1),
        *_wanted(_candidate),
    )
    number = values.number(_candidate)
    rows = select(_candidate.c.id).where(*within).limit(1).correlate(interval)
    of_interval = [rows.order_by(value.nulls_last(), _step) for value in (number, number.desc())]
    if values.name is not None:
        of_interval.append(rows.where(values.name(_candidate).is_not(None)).order_by(_step))
    first = select(_nearest(values, trials, _step, _candidate.c.trial_id == trials.c.id)).where(
        trials.c.id.in_(_trials)
    )
    chosen = union(first, *(select(one.scalar_subquery()).select_from(interval) for one in of_interval))
    query = select(*values.columns()).where(_point.c.id.in_(chosen))
    return query.order_by(_point.c.trial_id, _point.c.steps_completed)


def _sampled(values: _Values) -> Select[Any]:
    """Select the first row with a value, then repeatedly the first one at least ``stride`` steps later.

    The cost of walking along the index is proportional to the size of the sample. Extremes require a scan of all rows.
    """
    stride = _stride(_point.c.steps_completed)
    first = _of_trials(values, _step, stride.label("stride"))
    walk = first.cte("walk", recursive=True)
    here = walk.c.steps_completed
    later = (_step > here, _step >= _later_step(here, walk.c.stride))
    following = _nearest(values, walk, _step, _candidate.c.trial_id == walk.c.trial_id, *later)
    walk = walk.union_all(select(*values.columns(), walk.c.stride).join_from(walk, _point, _point.c.id == following))
    return select(walk.c.trial_id, walk.c.steps_completed, walk.c.value, walk.c.name).order_by(walk.c.steps_completed)


def _stride(first: Any) -> Any:
    """Return the length of intervals from a step to the last one, rounded up. PostgreSQL refuses greater sums."""
    return (_last_step - first - 1) // _points + 1


def _later_step(step: Any, distance: Any) -> Any:
    """Return a step at a distance, at most the greatest one, because PostgreSQL refuses a greater sum."""
    return case((step <= MAX_STEPS - distance, step + distance), else_=MAX_STEPS)


def _last(values: _Values) -> Select[Any]:
    """Select the last row of trials with a value."""
    return _of_trials(values, _step.desc())


def _of_trials(values: _Values, order: ColumnElement[Any], *more: ColumnElement[Any]) -> Select[Any]:
    nearest = _nearest(values, trials, order, _candidate.c.trial_id == trials.c.id)
    query = select(*values.columns(), *more).join_from(trials, _point, _point.c.id == nearest)
    return query.where(trials.c.id.in_(_trials))


def _nearest(values: _Values, to: Any, order: ColumnElement[Any], *where: ColumnElement[bool]) -> ScalarSelect[int]:
    """Select the id of the first row with a value in that order, found by an index."""
    rows = select(_candidate.c.id).where(*where, *_wanted(_candidate), values.is_there(_candidate))
    return rows.order_by(order).limit(1).correlate(to).scalar_subquery()
