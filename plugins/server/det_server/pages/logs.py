"""Log lines of a trial, filtered by the values of the URL: for its page, as JSON, and as a file."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import LOG_LEVELS, LONGEST_SEARCH, LogLine
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_log_line, format_value
from det_core.tracking.log_reading import LogFilter, log_parts
from det_server._ansi_text import LONGEST_SHOWN_LINE, colored_segments
from det_server._csv_export import export_response
from det_server._json_response import JsonResponse
from det_server._rendering import format_moment
from det_server.pages._store_values import parse_number, store_of, trial_of

FIRST_LINES = 500
"""Number of log lines on the page when it opens."""
MOST_LINES = 2000
"""Maximum number of log lines in a response."""
MOST_CHARACTERS = 1 << 20
"""Number of characters of shown lines after which a response has no more of them."""
_COLOR_CHARACTERS = 30
"""Number of characters that an escape sequence counts as in addition, because a page has an element for each colour."""
_MOST_SECONDS = 1.0
"""Seconds after which a response has no more lines, and says up to which line it has looked."""
_LINES_AT_ONCE = 200
"""Number of log lines that are read at once, of which each may be long."""
_MOST_RANKS = 100
_STREAMS = ("stdout", "stderr", "det")
_RANK = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ShownLines:
    """Log lines that a response has.

    Args:
        lines: the lines in order, each with its beginning.
        more: whether there may be more.
        after: id up to which lines were looked at, from which a page continues.
        before: id from which lines were looked at, from which a page goes back.
    """

    lines: list[LogLine]
    more: bool
    after: int
    before: int


def filter_of(query: QueryParams) -> LogFilter:
    """Return the filter in the query of a URL, which has the names of ``det trial logs``. Other values are ignored."""
    stdtype, level = query.get("stdtype", ""), query.get("level", "")
    return LogFilter(
        ranks=list(dict.fromkeys(map(int, _RANK.findall(",".join(query.getlist("rank"))))))[:_MOST_RANKS],
        stdtype=stdtype if stdtype in _STREAMS else "",
        level=level if level in LOG_LEVELS else "",
        search=query.get("search", "")[:LONGEST_SEARCH],
    )


def filter_values(chosen: LogFilter) -> dict[str, Any]:
    """Return a filter as values of a URL."""
    ranks = ",".join(map(str, chosen.ranks))
    return {"rank": ranks, "stdtype": chosen.stdtype, "level": chosen.level, "search": chosen.search}


def send_logs(request: Request) -> Response:
    """Return log lines of a trial as JSON, as pieces of plain text with names of style classes.

    A query with ``before`` receives the last lines before that id, and one with ``after`` the first ones after it.
    """
    trial, query = trial_of(request), request.query_params
    after, before = (parse_number(query.get(name, ""), default=0, most=2**62) for name in ("after", "before"))
    limit = parse_number(query.get("limit", ""), default=MOST_LINES, most=MOST_LINES)
    found = read_lines(
        store_of(request),
        trial.id,
        filter_of(query),
        limit,
        after=after,
        before=before or None,
        newest="before" in query,
    )
    shown = [{"id": one.id, "text": colored_segments(one.log), **line_values(one)} for one in found.lines]
    return JsonResponse({"lines": shown, "more": found.more, "after": found.after, "before": found.before})


def line_values(line: LogLine) -> dict[str, str]:
    """Return what a page shows about a line beside its text."""
    source = "det" if line.stdtype == "det" else f"{line.rank}" + (" err" if line.stdtype == "stderr" else "")
    return {"time": format_moment(line.time), "source": source, "level": "" if line.level == "INFO" else line.level}


def read_lines(
    store: TrackingStore,
    trial_id: int,
    chosen: LogFilter,
    limit: int,
    *,
    after: int = 0,
    before: int | None = None,
    newest: bool,
) -> ShownLines:
    """Return the beginnings of log lines, about `MOST_CHARACTERS` at most.

    Args:
        store: the tracking store.
        trial_id: id of the trial.
        chosen: the filter.
        limit: maximum number of lines.
        after: only lines with a greater id.
        before: only lines with a smaller id.
        newest: whether the last of these lines are wanted, and not the first ones.
    """
    last = store.logs(trial_id, limit=1, newest=True)
    end = before or (last[0].id + 1 if last else 1)
    edge, more, lines, characters = end if newest else after, False, list[LogLine](), 0
    deadline = time.monotonic() + _MOST_SECONDS
    for line, edge in _each_line(store, trial_id, chosen, after, end, newest=newest):  # noqa: B007
        if line:
            text = line.log[:LONGEST_SHOWN_LINE]
            lines.append(replace(line, log=text))
            characters += len(text) + _COLOR_CHARACTERS * text.count("\x1b")
        more = len(lines) == limit or characters > MOST_CHARACTERS or time.monotonic() > deadline
        if more:
            break
    if newest:
        return ShownLines(lines[::-1], more, end - 1, edge)
    return ShownLines(lines, more, edge, after + 1)


def _each_line(
    store: TrackingStore, trial_id: int, chosen: LogFilter, after: int, before: int, *, newest: bool
) -> Iterator[tuple[LogLine | None, int]]:
    """Yield each line with its id, and None with the id up to which everything was read at the end of each part."""
    options = {"after": after, "before": before, "newest": newest, "at_once": _LINES_AT_ONCE}
    for part in log_parts(store, trial_id, chosen, **options):  # type: ignore[arg-type]
        for line in reversed(part.lines) if newest else part.lines:
            yield line, line.id
        yield None, part.edge


def export_logs(request: Request) -> Response:
    """Return the lines of a trial that match the filter as a text file, as ``det trial logs`` prints them."""
    trial, store, chosen = trial_of(request), store_of(request), filter_of(request.query_params)
    parts = (
        "".join(f"{format_value(line.time)} {format_log_line(line)}\n" for line in part.lines).encode(errors="replace")
        for part in log_parts(store, trial.id, chosen, at_once=_LINES_AT_ONCE)
    )
    begin = list(islice(parts, 1))  # raises what is wrong with the filter before the answer begins
    return export_response(f"trial-{trial.id}.log", "text/plain; charset=utf-8", chain(begin, parts))


ROUTES = [Route("/trials/{id:int}/logs.txt", export_logs), Route("/data/logs/{id:int}", send_logs)]
