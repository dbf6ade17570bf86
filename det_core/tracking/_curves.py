"""Curves of metrics, thinned out where they are read, so that long ones are quick to draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, bindparam, select

from det_core.tracking._rows import Part, get_trial
from det_core.tracking._schema import live, metrics
from det_core.tracking._types import finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_c = metrics.c
_step = _c.steps_completed
_of_group = (_c.trial_id == bindparam("trial"), live, _c.group == bindparam("of_group"))
_steps = select(_step).where(*_of_group).limit(1)
_first, _last = _steps.order_by(_step).scalar_subquery(), _steps.order_by(_step.desc()).scalar_subquery()
_ends = select(_first.label("first"), _last.label("last"))
_rows = select(_step, _c.metrics).where(*_of_group).order_by(_step)
_PAGE = 1000


def _sample() -> Select[Any]:
    """SQL: the first row, then always the next one at least ``stride`` steps later: a walk on the index."""
    walk = select(_first.label("step")).cte("walk", recursive=True)
    following = _steps.where(_step >= walk.c.step + bindparam("stride")).order_by(_step).scalar_subquery()
    walk = walk.union_all(select(following).where(walk.c.step.is_not(None)))
    return _rows.join(walk, walk.c.step == _step)


_sampled = _sample()


class Curves(Part):
    def curve(self, trial_id: int, metric: str, *, group: str, points: int = 1000) -> list[tuple[int, float]]:
        whose = {"trial": trial_id, "of_group": group}
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            first, last = connection.execute(_ends, whose).one()
            if first is None:
                return []
            stride = max(1, -((first - last) // points))
            sample = list(_read(connection, _sampled, {**whose, "stride": stride}))
            if stride > 1 and any(finite(values.get(metric)) is None for _, values in sample):
                # Reported now and then: only a look at every row finds it.
                sample = list(_thinned(_read(connection, _rows, whose), metric, stride))
            elif sample[-1][0] != last:
                sample += _read(connection, _rows.where(_step == last), whose)
        found = ((step, finite(values.get(metric))) for step, values in sample)
        return [(step, value) for step, value in found if value is not None]


def _read(connection: Connection, query: Select[Any], parameters: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    for row in connection.execute(query, parameters, execution_options={"yield_per": _PAGE}):
        yield row.steps_completed, row.metrics


def _thinned(rows: Iterator[tuple[int, Any]], metric: str, stride: int) -> Iterator[tuple[int, Any]]:
    """Those with the metric, each at least ``stride`` steps after the one before, and the last one."""
    following, skipped = 0, None
    for step, values in rows:
        if finite(values.get(metric)) is None:
            continue
        skipped = (step, values)
        if step >= following:
            yield skipped
            following, skipped = step + stride, None
    if skipped:
        yield skipped
