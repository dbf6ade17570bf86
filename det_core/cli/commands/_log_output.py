"""Log output of trials."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

from det_core.cli._command_table import FILTERS, UsageError, make_argument, parse_count
from det_core.cli.render.printing import print_json
from det_core.interfaces.records import LOG_LEVELS, LONGEST_SEARCH, LogLine
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_log_line, format_value
from det_core.tracking.control import log_lines
from det_core.tracking.log_reading import LogFilter

_PAGE = 10_000
"""Number of lines that are read at a time."""


def _moment(given: str) -> datetime:
    try:
        found = datetime.fromisoformat(given.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time such as 2026-05-17T09:30:00, got {given!r}") from None
    return found if found.tzinfo else found.astimezone()


def _searched_text(given: str) -> str:
    if len(given) > LONGEST_SEARCH:
        raise argparse.ArgumentTypeError(f"expected at most {LONGEST_SEARCH} characters, got {len(given)}")
    return given


LOG_ARGUMENTS = (
    make_argument("-f", "--follow", action="store_true", help="continue until the experiment ends or pauses"),
    make_argument("--head", type=parse_count, metavar="N", help="only the first N lines", group=FILTERS),
    make_argument("--tail", type=parse_count, metavar="N", help="only the last N lines", group=FILTERS),
    make_argument(
        "--rank",
        "--rank-id",
        type=parse_count,
        action="append",
        default=[],
        dest="ranks",
        metavar="N",
        help="only lines of the worker with this rank; may be repeated",
        group=FILTERS,
    ),
    make_argument(
        "--stdtype",
        choices=("stdout", "stderr", "det"),
        help="only lines of this stream; det: lines of the runner",
        group=FILTERS,
    ),
    make_argument(
        "--level",
        choices=LOG_LEVELS,
        help="only lines of this level and more severe ones, as the lines name it",
        group=FILTERS,
    ),
    make_argument(
        "--search",
        type=_searched_text,
        metavar="TEXT",
        help="only lines that contain this text, ignoring case",
        group=FILTERS,
    ),
    make_argument(
        "--timestamp-after",
        type=_moment,
        metavar="TIME",
        help="only lines after this time, which is local if it has no time zone",
        group=FILTERS,
    ),
    make_argument(
        "--timestamp-before", type=_moment, metavar="TIME", help="only lines before this time", group=FILTERS
    ),
)


def print_logs(
    store: TrackingStore, experiment_id: int, args: argparse.Namespace, *, trial_id: int | None = None
) -> None:
    """Print the log lines of an experiment. With ``--follow``, continue until the experiment ends or pauses.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        args: arguments of the command, which select lines.
        trial_id: the only trial to print, or None for all trials.

    Raises:
        UsageError: both ``--follow`` and ``--tail`` were given.
    """
    if args.follow and args.tail is not None:
        raise UsageError("--follow and --tail exclude each other, because the last lines are not known yet")
    found: Iterable[LogLine] = log_lines(store, experiment_id, trial_id, follow=args.follow, chosen=_filter(args))
    if args.head is not None:
        found = islice(found, args.head)
    if args.tail is not None:
        found = deque(found, maxlen=args.tail)
    if args.json:
        print_json(iter(found))
        return
    for line in found:
        print(format_value(line.time), format_log_line(line), flush=args.follow)


def _filter(args: argparse.Namespace) -> LogFilter:
    return LogFilter(
        ranks=args.ranks,
        stdtype=args.stdtype or "",
        level=args.level or "",
        search=args.search or "",
        earliest=args.timestamp_after,
        latest=args.timestamp_before,
    )
