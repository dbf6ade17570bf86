"""System metrics of the hosts of a trial. They have no steps, and are never merged or archived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, true

from det_core.interfaces.records import SystemMetrics
from det_core.tracking._rows import StoreMixin, fence_run, fetch_records, get_trial, record_columns
from det_core.tracking._schema import system_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

_c = system_metrics.c


class SystemMetricsMixin(StoreMixin):
    """Methods of the tracking store for system metrics."""

    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        if not samples:
            return
        rows = [{name: value for name, value in vars(sample).items() if name != "id"} for sample in samples]
        with self._database.write() as connection:
            for trial_id, run_id in sorted({(sample.trial_id, sample.run_id) for sample in samples}):
                fence_run(connection, trial_id, run_id)
            connection.execute(system_metrics.insert(), rows)

    def system_metrics(
        self, trial_id: int, *, group: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[SystemMetrics]:
        wanted = (_c.trial_id == trial_id, _c.id > after, true() if group is None else _c.group == group)
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            query = select(*record_columns(system_metrics, SystemMetrics)).where(*wanted)
            return fetch_records(connection, SystemMetrics, query.order_by(_c.id).limit(limit))
