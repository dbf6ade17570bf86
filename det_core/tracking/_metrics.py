"""Metrics in the tracking store, which are written in batches and read in the order of steps.

System metrics of the hosts of a trial have no steps, and are never merged or archived.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    delete,
    select,
    true,
    tuple_,
    type_coerce,
    update,
)

from det_core.errors import CallTooLarge
from det_core.interfaces.records import MetricsReport, SystemMetrics, searcher_metric
from det_core.tracking._column_types import MetricsJson, finite_or_none, load_metrics, utc_now
from det_core.tracking._metrics_merge import ReportKey, merge_reports, merge_same_key, report_key
from det_core.tracking._rows import (
    StoreMixin,
    fence_run,
    fetch_large_rows,
    fetch_records,
    get_experiment,
    get_trial,
    id_list,
    record_columns,
    require_few_rows,
    update_trial,
)
from det_core.tracking._schema import archived as gone
from det_core.tracking._schema import experiments, live, metrics, system_metrics, trials
from det_core.tracking._scores import VALIDATION, best_of_trials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_PAGE = 1000
"""Maximum number of reports that are read at once."""
_PAGE_CHARACTERS = 8 << 20
"""Number of their characters after which no more are read at once, because one may have millions of values."""
_c = metrics.c
_system = system_metrics.c
_insert = metrics.insert()
_has_batches = _c.batch_metrics.is_not(None)
_keyed = select(_c.id, _c.run_id, _c.group, _c.steps_completed, _has_batches.label("has_batches")).where(
    _c.trial_id == bindparam("trial"), live
)
_between = _keyed.where(_c.steps_completed.between(bindparam("first"), bindparam("last")))
# The order is that of the index.
_select_between: Select[Any] = _between.order_by(_c.steps_completed).limit(bindparam("most"))
_select_keyed: Select[Any] = _keyed.where(
    _c.steps_completed.in_(id_list("steps")),  # SQLite looks for these in the index, and not for pairs
    tuple_(_c.steps_completed, _c.group).in_(bindparam("keys", expanding=True)),
)
_of_group = (_c.trial_id == bindparam("trial"), _c.group == bindparam("in_group"))
_select_own = select(_c.id).where(*_of_group, _c.run_id == bindparam("run")).limit(1)
_archive_older = (
    update(metrics)
    .where(*_of_group, _c.run_id < bindparam("run"), _c.steps_completed >= bindparam("step"))
    .where(_c.archived.is_not(true()))  # with `live`, SQLite may read the reports of all groups and runs
    .values(archived=True)
)
_archive_row = update(metrics).where(_c.id == bindparam("row")).values(archived=True)
_kept = metrics.alias("kept")
_keep_batches = (
    update(metrics)
    .where(*_of_group, _c.steps_completed == bindparam("step"), live)
    .values(batch_metrics=select(_kept.c.batch_metrics).where(_kept.c.id == bindparam("row")).scalar_subquery())
)
_delete_row = delete(metrics).where(_c.id == bindparam("row"))


class MetricsMixin(StoreMixin):
    """Methods of the tracking store for metrics."""

    def report_metrics(self, reports: Sequence[MetricsReport]) -> None:
        if not reports:
            return
        time = utc_now()
        united = merge_reports(report if report.time else replace(report, time=time) for report in reports)
        by_trial = groupby(sorted(united.values(), key=attrgetter("trial_id")), key=attrgetter("trial_id"))
        with self._database.write() as connection:
            # All writers lock trials in the same order, so that no two wait for each other.
            steps = {trial: fence_run(connection, trial, run) for trial, run in _writers(reports)}
            for trial_id, of_trial in by_trial:
                _write(connection, trial_id, list(of_trial), steps[trial_id])

    def metrics(
        self, trial_id: int, *, group: str | None = None, after: int = -1, archived: bool = False
    ) -> Iterator[MetricsReport]:
        wanted = and_(
            _c.trial_id == trial_id,
            gone if archived else live,
            true() if group is None else _c.group == group,
        )
        with self._database.read() as connection:
            get_trial(connection, trial_id)
        return self._pages(wanted, after)

    def best_validation(
        self, experiment_id: int, metric: str, *, smaller_is_better: bool, trial_id: int | None = None
    ) -> tuple[float, int, int] | None:
        wanted = and_(trials.c.experiment_id == experiment_id, true() if trial_id is None else trials.c.id == trial_id)
        # Every stored number is finite, because NaN and infinities are stored as strings.
        with self._database.read() as connection:
            if metric == searcher_metric(get_experiment(connection, experiment_id).config)[0]:
                query = best_of_trials(wanted, smaller_is_better=smaller_is_better)
            else:
                value = self._database.number(metrics, metric)
                query = (
                    select(value.label("value"), _c.trial_id, _c.steps_completed)
                    .where(
                        _c.trial_id.in_(select(trials.c.id).where(wanted)),
                        live,
                        _c.group == VALIDATION,
                        value.is_not(None),
                    )
                    .order_by(value.asc() if smaller_is_better else value.desc(), _c.id)
                )
            best = connection.execute(query.limit(1)).one_or_none()
        return None if best is None else (float(best.value), best.trial_id, best.steps_completed)

    def _pages(self, wanted: ColumnElement[bool], after: int) -> Iterator[MetricsReport]:
        """Yield reports page by page, so that no transaction stays open while the caller works."""
        order = (_c.steps_completed, _c.group, _c.id)
        query = _select_reports(wanted).order_by(*order).limit(_PAGE)
        page = query.where(_c.steps_completed > after)
        more = True
        while more:
            rows, more = self._database.retry(partial(self._rows, page))
            for row in rows:
                yield _report(row)
            if more:
                last = rows[-1]
                page = query.where(tuple_(*order) > (last.steps_completed, last.group, last.id))

    def _rows(self, page: Select[Any]) -> tuple[Sequence[Row[Any]], bool]:
        """Return the rows of a page, and whether there may be more."""
        with self._database.read() as connection:
            rows, has_more = fetch_large_rows(connection, page, _count_characters, _PAGE_CHARACTERS)
        return rows, has_more or len(rows) == _PAGE

    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        if not samples:
            return
        require_few_rows(len(samples), "samples")
        rows = [{name: value for name, value in vars(sample).items() if name != "id"} for sample in samples]
        with self._database.write() as connection:
            for trial_id, run_id in _writers(samples):
                fence_run(connection, trial_id, run_id)
            connection.execute(system_metrics.insert(), rows)

    def system_metrics(
        self, trial_id: int, *, group: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[SystemMetrics]:
        wanted = (
            _system.trial_id == trial_id,
            _system.id > after,
            true() if group is None else _system.group == group,
        )
        with self._database.read() as connection:
            get_trial(connection, trial_id)
            query = select(*record_columns(system_metrics, SystemMetrics)).where(*wanted)
            return fetch_records(connection, SystemMetrics, query.order_by(_system.id).limit(limit))


def _count_characters(row: Row[Any]) -> int:
    return len(row.metrics) + len(row.batch_metrics or "")


def _select_reports(wanted: ColumnElement[bool]) -> Select[Any]:
    return select(_c.id, *map(_as_text, record_columns(metrics, MetricsReport))).where(wanted)


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a column, that of metrics without decoding, which takes several times as much memory."""
    return type_coerce(column, Text).label(column.key) if isinstance(column.type, MetricsJson) else column


def _report(row: Row[Any]) -> MetricsReport:
    values = dict(row._mapping)
    del values["id"]
    for name in ("metrics", "batch_metrics"):
        values[name] = None if values[name] is None else load_metrics(values[name])
    return MetricsReport(**values)


def archive_after(connection: Connection, trial_id: int, step: int, since_run: int) -> None:
    """Archive the metrics after a step that a run of a trial and the runs after it reported."""
    later = (_c.trial_id == trial_id, live, _c.steps_completed > step, _c.run_id >= since_run)
    connection.execute(update(metrics).where(*later).values(archived=True))


def _writers(reports: Iterable[MetricsReport | SystemMetrics]) -> Iterator[tuple[int, int]]:
    """Yield the different trials and runs in order."""
    for writer, _ in groupby(sorted((report.trial_id, report.run_id) for report in reports)):  # hashes may be the same
        yield writer


def _write(connection: Connection, trial_id: int, reports: list[MetricsReport], steps_completed: int) -> None:
    """Write the reports of one run. There is one report for each key.

    Args:
        steps_completed: the value that the trial has at present.
    """
    run_id = reports[0].run_id
    superseded = _superseded(connection, trial_id, run_id, reports) if run_id > 1 else []
    metric = _searcher_metric(connection, trial_id, reports)
    replaced = _rows_with_keys(connection, trial_id, reports)
    own = {key: row.id for key, row in replaced.items() if row.run_id == run_id}
    united = _unite(connection, own, reports) if own else reports
    if replaced:
        connection.execute(_archive_row, [{"row": row.id} for row in replaced.values()])
    connection.execute(
        _insert, [{**vars(one), "archived": False, "searcher_metric": _value(one, metric)} for one in united]
    )
    if superseded:  # after the insertion, which fails if a report cannot be stored
        connection.execute(_archive_older, superseded)
    if kept := [
        {"row": row.id, "trial": trial_id, "in_group": row.group, "step": row.steps_completed}
        for row in replaced.values()
        if row.run_id == run_id and row.has_batches
    ]:
        connection.execute(_keep_batches, kept)
    if own:  # after the insertion, so that unions have new ids, by which `changes` finds them
        connection.execute(_delete_row, [{"row": row} for row in own.values()])
    last = max(report.steps_completed for report in reports)
    if last > steps_completed:
        update_trial(connection, trial_id, steps_completed=last)


def _superseded(
    connection: Connection, trial_id: int, run_id: int, reports: list[MetricsReport]
) -> list[dict[str, Any]]:
    """Return the groups in which a run reports for the first time, and the steps of these reports.

    They are the parameters of `_archive_older`. Other groups stay, because they may count in another unit. After the
    first report, a lower step is a late report.
    """
    first: dict[str, int] = {}
    for report in reports:
        first.setdefault(report.group, report.steps_completed)
    ids = {"trial": trial_id, "run": run_id}
    return [
        {**ids, "in_group": group, "step": step}
        for group, step in first.items()
        if connection.execute(_select_own, {**ids, "in_group": group}).first() is None
    ]


def _rows_with_keys(connection: Connection, trial_id: int, reports: list[MetricsReport]) -> dict[ReportKey, Row[Any]]:
    """Return the existing rows with the keys of these reports. In most cases there are none.

    The cost is one lookup in the index, or one for each report if other reports are between them.
    """
    steps = [report.steps_completed for report in reports]
    between = {"trial": trial_id, "first": min(steps), "last": max(steps), "most": len(reports) + 1}
    rows = connection.execute(_select_between, between).all()
    if len(rows) > len(reports):
        keys = [(report.steps_completed, report.group) for report in reports]
        rows = connection.execute(_select_keyed, {"trial": trial_id, "steps": steps, "keys": keys}).all()
    wanted = {report_key(report) for report in reports}
    found = {(trial_id, row.group, row.steps_completed): row for row in rows}
    return {key: found[key] for key in wanted & found.keys()}


def _unite(
    connection: Connection, rows: Mapping[ReportKey, int], reports: Sequence[MetricsReport]
) -> list[MetricsReport]:
    """Return reports merged into those of existing rows, whose ids are given by key.

    The metrics of their batches, which may be large and are never merged, are ``[]``.

    Raises:
        CallTooLarge: the existing ones are too large to be in memory together.
    """
    columns = [_as_text(column) for column in record_columns(metrics, MetricsReport) if column is not _c.batch_metrics]
    batches = case((_has_batches, "[]")).label("batch_metrics")
    query = select(_c.id, *columns, batches).where(_c.id.in_(id_list(None, list(rows.values()))))
    found, _ = fetch_large_rows(connection, query, _count_characters, _PAGE_CHARACTERS)
    if len(found) < len(rows):
        raise CallTooLarge(
            f"the {len(rows)} earlier reports of these steps have more than {_PAGE_CHARACTERS >> 20} MiB; "
            "report fewer at once"
        )
    old = {report_key(report): report for report in map(_report, found)}
    return [merge_same_key(old[key], report) if (key := report_key(report)) in old else report for report in reports]


def _searcher_metric(connection: Connection, trial_id: int, reports: Iterable[MetricsReport]) -> str:
    """Return the metric that the searcher uses, or an empty string if no report is a validation.

    Most reports are training metrics, for which no query is needed.
    """
    if all(report.group != VALIDATION for report in reports):
        return ""
    of_trial = select(experiments.c.config).join(trials).where(trials.c.id == trial_id)
    return searcher_metric(connection.execute(of_trial).scalar_one())[0]


def _value(report: MetricsReport, metric: str) -> float | None:
    return finite_or_none(report.metrics.get(metric)) if report.group == VALIDATION else None
