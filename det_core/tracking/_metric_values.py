"""Newest, least and greatest values of metrics, which are read in one pass over the reports of trials."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, or_, select

from det_core.errors import CallTooLarge
from det_core.interfaces.records import MAX_STEPS, MetricValues, require_writable
from det_core.json_values import NON_FINITE
from det_core.tracking._rows import StoreMixin, id_list
from det_core.tracking._schema import live, metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Select

_MOST_METRICS = 100
_c = metrics.c


class MetricValuesMixin(StoreMixin):
    """Methods of the tracking store for the values of metrics that tables of trials show."""

    def metric_values(
        self, trial_ids: Collection[int], metrics: Sequence[str], *, group: str, until: int = MAX_STEPS
    ) -> dict[int, dict[str, MetricValues]]:
        if len(metrics) > _MOST_METRICS:
            raise CallTooLarge(f"the values of {len(metrics)} metrics are asked for; expected at most {_MOST_METRICS}")
        for metric in metrics:
            require_writable(metric)
        if not metrics or not trial_ids:
            return {}
        of_trials = (_c.trial_id.in_(id_list(None, list(trial_ids))), _c.group == group, _c.steps_completed <= until)
        with self._database.read() as connection, self._database.limit_time(connection):
            extents = connection.execute(self._extents(metrics).where(live, *of_trials)).all()
            steps = {(row[0], step) for row in extents for step in row[1::3] if step is not None}
            newest = self._values_at(connection, metrics, group, steps)
        found = defaultdict[int, dict[str, MetricValues]](dict)
        for trial_id, *values in extents:
            for metric, step, least, greatest in zip(metrics, values[::3], values[1::3], values[2::3], strict=True):
                if step is not None:
                    found[trial_id][metric] = MetricValues(
                        latest=newest[trial_id, step][metric],
                        steps_completed=step,
                        least=None if least is None else float(least),
                        greatest=None if greatest is None else float(greatest),
                    )
        return dict(found)

    def _extents(self, names: Sequence[str]) -> Select[Any]:
        """Select for each trial the last step, the least and the greatest value of each metric."""
        columns: list[Any] = []
        for name in names:
            number, other = self._database.number(metrics, name), self._database.non_finite(metrics, name)
            last = func.max(case((or_(number.is_not(None), other.is_not(None)), _c.steps_completed)))
            columns += [last, func.min(number), func.max(number)]
        return select(_c.trial_id, *columns).group_by(_c.trial_id)

    def _values_at(
        self, connection: Connection, names: Sequence[str], group: str, steps: Iterable[tuple[int, int]]
    ) -> Mapping[tuple[int, int], Mapping[str, float]]:
        """Return the values of metrics by trial and step."""
        columns = [
            column(metrics, name) for name in names for column in (self._database.number, self._database.non_finite)
        ]
        by_step = defaultdict[int, list[int]](list)
        for trial_id, step in steps:
            by_step[step].append(trial_id)
        found: dict[tuple[int, int], Mapping[str, float]] = {}
        for step, ids in by_step.items():
            at_step = (_c.trial_id.in_(id_list(None, ids)), _c.steps_completed == step, _c.group == group)
            for trial_id, *values in connection.execute(select(_c.trial_id, *columns).where(live, *at_step)):
                pairs = zip(names, values[::2], values[1::2], strict=True)
                found[trial_id, step] = {
                    name: NON_FINITE[other] if number is None else float(number)
                    for name, number, other in pairs
                    if number is not None or other is not None
                }
        return found
