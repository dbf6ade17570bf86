"""Output of reported metrics by ``describe --metrics``, which streams them instead of loading all of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import chain

from det_core.cli._command_table import FILTERS, OUTPUT, UsageError, make_argument, parse_count
from det_core.cli.render.printing import print_csv_rows
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_scalars, format_value, to_json_compatible

METRICS_ARGUMENTS = (
    make_argument("--metrics", action="store_true", help="also show all reported metrics", group=OUTPUT),
    make_argument(
        "--group", metavar="GROUP", help="only metrics of this group, such as training or validation", group=FILTERS
    ),
    make_argument("--after", type=parse_count, metavar="BATCH", help="only metrics of later batches", group=FILTERS),
    make_argument(
        "--csv",
        action="store_true",
        help="print only the metrics, as comma-separated values with a line for each",
        group=OUTPUT,
    ),
)


def check_metrics_options(args: argparse.Namespace) -> None:
    """Check that the options for metrics can be combined.

    Raises:
        UsageError: an option needs ``--metrics``, or ``--json`` and ``--csv`` were given together.
    """
    if not args.metrics and (args.csv or args.group is not None or args.after is not None):
        raise UsageError("--csv, --group and --after need --metrics; add it")
    if args.json and args.csv:
        raise UsageError("--json and --csv exclude each other; give one of them")


def select_reports(store: TrackingStore, trial_ids: Iterable[int], args: argparse.Namespace) -> Iterator[MetricsReport]:
    """Yield the reports of the trials that ``--group`` and ``--after`` select, one trial after the other."""
    after = -1 if args.after is None else args.after
    for trial_id in trial_ids:
        yield from store.metrics(trial_id, group=args.group, after=after)


def print_metrics_csv(found: Iterable[MetricsReport]) -> None:
    """Print a CSV line for each metric of each report, because reports may have different metrics."""
    print_csv_rows(chain([("trial_id", "group", "steps_completed", "time", "metric", "value")], _rows(found)))


def _rows(found: Iterable[MetricsReport]) -> Iterator[tuple[object, ...]]:
    for report in found:
        where = (report.trial_id, report.group, report.steps_completed, to_json_compatible(report.time))
        for name, value in to_json_compatible(report.metrics).items():
            yield (*where, name, json.dumps(value) if isinstance(value, (dict, list)) else value)


def print_metrics_lines(found: Iterable[MetricsReport]) -> None:
    """Print a blank line, then a line like ``trial 3  batch 100  training  loss=0.1`` for each report."""
    for number, report in enumerate(found):
        lead = "" if number else "\n"
        where = f"trial {report.trial_id}  batch {report.steps_completed}  {format_value(report.group)}"
        print(f"{lead}{where}  {format_scalars(report.metrics)}")
