"""Output of records as JSON, CSV and listings."""

from __future__ import annotations

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import islice

from det_core.cli._command_table import UsageError
from det_core.text import escape_csv_cell, flatten_mapping, to_json_compatible

_PIECES = 1000
"""Number of pieces of JSON that are written at a time."""


def print_json(value: object) -> None:
    """Print one JSON document, as converted by `to_json_compatible`. Iterators are streamed."""
    pieces = json.JSONEncoder(indent=2, allow_nan=False).iterencode(to_json_compatible(value))
    while together := "".join(islice(pieces, _PIECES)):  # a piece is a few characters
        sys.stdout.write(together)
    print()


def print_csv(records: Iterable[object]) -> None:
    """Print records as CSV lines after a line of column names. Nested keys become columns like ``a.b``."""
    rows = [flatten_mapping(to_json_compatible(record)) for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    nested = {name.rpartition(".")[0] for name in names}  # a record without the nested mapping has None under its name
    columns = [name for name in names if name not in nested]
    print_csv_rows([columns, *([row.get(name) for name in columns] for row in rows)])


def print_csv_rows(rows: Iterable[Iterable[object]]) -> None:
    """Print CSV lines. Text that a spreadsheet would interpret as a formula is prefixed with ``'``."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(map(escape_csv_cell, row) for row in rows)


def print_listing(args: Namespace, records: Iterable[object], lines: Callable[[], str]) -> None:
    """Print a listing in the format that ``--json`` or ``--csv`` selects, or as text.

    Args:
        args: arguments of the command.
        records: records for JSON and CSV.
        lines: function that returns the text.

    Raises:
        UsageError: both options were given.
    """
    if args.json and args.csv:
        raise UsageError("--json and --csv exclude each other; give one of them")
    if args.json:
        print_json(records)
    elif args.csv:
        print_csv(records)
    else:
        print(lines())
