"""Export of tables as CSV, and of other files that are read while they are sent."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from io import StringIO
from itertools import chain, count, takewhile
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from det_core.text import escape_csv_cell, mask_references
from det_server._admitted_sending import send_while_admitted
from det_server._shares import Shares
from det_server._site import principal_of

MAX_EXPORTS = 16
"""Maximum number of tables that are read and sent at a time. Each has many of its rows in memory."""
MAX_EXPORTS_PER_PERSON = 4
"""Maximum number of tables that are read and sent to one person at a time."""
_ROWS_AT_ONCE = 500

_T = TypeVar("_T")


class _Export(StreamingResponse):
    """File that is read while it is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        exports: Shares = request.app.state.exports
        person = principal_of(request).name
        refusal = f"{exports.of(person)} exports of {person} and {exports.total} in all are under way; try again soon"
        with exports.reserve(person, each=MAX_EXPORTS_PER_PERSON, total=MAX_EXPORTS, refusal=refusal):
            await send_while_admitted(super().__call__, scope, receive, send)


def csv_response(file_name: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Response:
    """Return a table as a CSV file to save.

    Args:
        file_name: suggested name of the file.
        columns: names of the columns.
        rows: values of each row.
    """
    return export_response(file_name, "text/csv; charset=utf-8", _csv_text(columns, rows))


def export_response(file_name: str, media_type: str, parts: Iterable[bytes]) -> Response:
    """Return a file to save, which is read while it is sent.

    Args:
        file_name: suggested name of the file.
        media_type: its type.
        parts: its contents.
    """
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return _Export(parts, media_type=media_type, headers=headers)


def read_in_parts(read: Callable[..., Sequence[_T]]) -> Iterator[_T]:
    """Return an iterator over the results of a function with ``limit`` and ``offset``, of which few are in memory.

    Errors about the arguments are raised here, before the answer begins.
    """
    parts = (read(limit=_ROWS_AT_ONCE, offset=offset) for offset in count(0, _ROWS_AT_ONCE))
    return chain.from_iterable(takewhile(bool, chain([next(parts)], parts)))


def _csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[bytes]:
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(map(_cell, columns))
    for number, row in enumerate(rows, 1):
        writer.writerow(map(_cell, row))
        if number % _ROWS_AT_ONCE == 0:
            yield buffer.getvalue().encode(errors="replace")
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode(errors="replace")


def _cell(value: object) -> object:
    """Return a value as spreadsheets read it, with times in UTC and lists separated by commas."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, str):
        value = mask_references(value).replace("\0", "")
    return escape_csv_cell(value)
