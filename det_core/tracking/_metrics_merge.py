"""Rules for checking and merging reports of metrics."""

from __future__ import annotations

import reprlib
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from det_core.errors import CallTooLarge, MetricsConflict
from det_core.interfaces.records import MAX_METRICS, MAX_STEPS
from det_core.tracking._column_types import dump_metrics
from det_core.tracking._rows import require_few_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from det_core.interfaces.records import MetricsReport

ReportKey = tuple[int, str, int]
"""Key (trial id, group, step) of one row of metrics."""
_MOST_GROUPS = 100
"""Maximum number of groups of the reports of a call, counted for each trial. For each, the reports of older runs are
looked for while others wait to write."""


def report_key(report: MetricsReport) -> ReportKey:
    """Return the key of the row in which a report is stored."""
    return report.trial_id, report.group, report.steps_completed


def merge_reports(reports: Iterable[MetricsReport]) -> dict[ReportKey, MetricsReport]:
    """Check reports, merge those with the same key, and return them by key in the order of first appearance.

    Raises:
        ValueError, TypeError: a report is invalid, as in `check_report`.
        MetricsConflict: two reports contradict each other, as in `merge_same_key`.
        CallTooLarge: they have more than `_MOST_GROUPS` groups or `MAX_ROWS` keys, or one has more than `MAX_METRICS`
            metrics.
    """
    by_key: defaultdict[ReportKey, list[MetricsReport]] = defaultdict(list)
    for report in reports:
        check_report(report)
        by_key[report_key(report)].append(report)
    groups = {(trial_id, group) for trial_id, group, _ in by_key}
    if len(groups) > _MOST_GROUPS:
        raise CallTooLarge(f"one call reports metrics of {len(groups)} groups; expected at most {_MOST_GROUPS}")
    require_few_rows(len(by_key), "steps")
    return {key: merge_same_key(*same) for key, same in by_key.items()}


def check_report(report: MetricsReport) -> None:
    """Raise an error if a report is invalid.

    Raises:
        ValueError: the group, the step, the name of a metric or an epoch is invalid.
        TypeError: the name of a metric is not a string.
        CallTooLarge: there are more than `MAX_METRICS` metrics.
    """
    if not report.group or "." in report.group:
        raise ValueError(f"the metrics group {report.group!r} must be a name without '.', such as 'training'")
    if not 0 <= report.steps_completed <= MAX_STEPS:
        raise ValueError(f"{_where(report)}: expected a step from 0 to {MAX_STEPS}")
    _require_few(report, report.metrics)
    for name in report.metrics:
        if not isinstance(name, str):
            raise TypeError(f"{_where(report)}: the name of metric {name!r} must be a string")
        if not name:
            raise ValueError(f"{_where(report)}: a metric has an empty name; expected one such as 'loss'")
    for name in ("epoch", "epochs"):
        value = report.metrics.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{_where(report)}: {name!r} must be a number, not {value!r}")


def merge_same_key(first: MetricsReport, *others: MetricsReport) -> MetricsReport:
    """Merge reports with the same key into one.

    Raises:
        MetricsConflict: the reports contradict each other.
        CallTooLarge: they have more than `MAX_METRICS` metrics together.
    """
    if not others:
        return first
    metrics, batches = dict(first.metrics), first.batch_metrics
    for new in others:
        for name in metrics.keys() & new.metrics.keys():
            if not _same(metrics[name], new.metrics[name]):
                values = f"{reprlib.repr(metrics[name])}, and now as {reprlib.repr(new.metrics[name])}"
                raise MetricsConflict(f"{_where(new)}: metric {name!r} was reported as {values}")
        if batches is not None and new.batch_metrics is not None:
            raise MetricsConflict(f"{_where(new)}: batch metrics were reported twice")
        metrics.update(new.metrics)
        batches = new.batch_metrics if batches is None else batches
    _require_few(first, metrics)
    return replace(first, metrics=metrics, batch_metrics=batches)


def _require_few(report: MetricsReport, metrics: Mapping[str, Any]) -> None:
    if len(metrics) > MAX_METRICS:
        raise CallTooLarge(
            f"{_where(report)}: {len(metrics)} metrics; expected at most {MAX_METRICS} for one step: report a summary "
            "of them, or save them in a checkpoint"
        )


def _same(old: Any, new: Any) -> bool:
    return bool(old == new) or dump_metrics(old) == dump_metrics(new)  # as text, NaN equals NaN


def _where(report: MetricsReport) -> str:
    return f"trial {report.trial_id}, group {report.group!r}, step {report.steps_completed}"
