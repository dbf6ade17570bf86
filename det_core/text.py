"""Formats of values for people, tables, CSV and JSON."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from det_core.extras import has_extra
from det_core.interfaces.secrets import MASK, REFERENCE_PREFIX, SECRET_REFERENCE
from det_core.json_values import iter_short_leaves, name_non_finite
from det_core.tracking.printable import printable_line, printable_text

if TYPE_CHECKING:
    from det_core.interfaces.records import CodeVersion, LogLine, Machine

__all__ = [
    "code_facts",
    "escape_csv_cell",
    "flatten_mapping",
    "format_count",
    "format_log_line",
    "format_size",
    "format_slot_hours",
    "format_table",
    "format_uncounted_runs",
    "format_value",
    "machine_facts",
    "mask_references",
    "split_failure",
    "to_json_compatible",
    "varying_names",
]

STATE_COLORS = {
    "ACTIVE": "cyan",
    "COMPLETED": "green",
    "ERROR": "red",
    "CANCELED": "yellow",
    "PAUSED": "yellow",
    "PARTIALLY_DELETED": "yellow",
}
"""Colours of rich for the names of states."""
_MOST_DRAWN = 1000
"""Number of rows from which tables have no colours, because drawing takes longer than reading them from the store."""
_RANK = re.compile(r"rank (\d+): ")
"""Rank at the beginning of the reason of a failure."""
_JSON_SCALARS = (type(None), bool, int)
"""Types of values that JSON represents unchanged."""
_LEAST = 24
"""Width in characters below which the last column of a table is not folded."""
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001  (spreadsheets accept full-width characters, too)
"""First characters of text that a spreadsheet interprets as a formula."""


def escape_csv_cell(value: object) -> object:
    """Return a value for a CSV cell. Text that a spreadsheet would interpret as a formula is prefixed with ``'``."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value) else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def flatten_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings to one with keys such as ``optimizer.lr``. Lists become JSON text.

    Args:
        values: the nested mappings.

    Raises:
        CallTooLarge: the keys have more than 4 MiB together, because those of outer mappings are repeated.
    """
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in iter_short_leaves(values)}


def varying_names(each: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the values that differ between mappings, or all names if none differs."""
    first: dict[str, str] = {}
    varying, counts = set[str](), Counter[str]()
    for values in each:
        counts.update(values.keys())
        for name, value in values.items():
            shown = repr(value)
            if first.setdefault(name, shown) != shown:
                varying.add(name)
    none = repr(None)  # a value that is missing is None
    varying |= {name for name, count in counts.items() if count < len(each) and first[name] != none}
    return [name for name in first if name in varying] or list(first)


def to_json_compatible(value: Any) -> Any:
    """Convert a value to JSON-compatible types.

    Records become mappings, and times become text in ISO 8601. Numbers that are not finite become ``"NaN"``,
    ``"Infinity"`` and ``"-Infinity"``. Secrets are masked. Iterators stay lazy.
    """
    if type(value) in _JSON_SCALARS:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return name_non_finite(value)
    if isinstance(value, str):
        return mask_references(value)
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        return {field.name: to_json_compatible(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_compatible(item) for key, item in value.items()}
    if isinstance(value, Iterator):
        return _StreamedList(map(to_json_compatible, value))
    if isinstance(value, Iterable):
        return [to_json_compatible(item) for item in value]
    return str(value)


def record_to_json(record: object, **parts: object) -> dict[str, Any]:
    """Return a record as a JSON object, with ``parts`` as additional keys."""
    whole: dict[str, Any] = to_json_compatible(record)
    return whole | {name: to_json_compatible(part) for name, part in parts.items()}


def code_facts(version: CodeVersion) -> dict[str, str]:
    """Return what is known about the commit of an experiment's code, by names for people."""
    changed = {True: "yes", False: "no", None: "unknown"}[version.is_changed]
    facts = {"commit": version.commit, "branch": version.branch, "tag": version.tag, "remote": version.remote}
    return {name: printable_line(fact) for name, fact in facts.items() if fact} | {"changed since": changed}


def machine_facts(machine: Machine) -> dict[str, str]:
    """Return what is known about a machine, by names for people. Packages are left out."""
    named = Counter(f"{gpu['name']}, {format_size(gpu['memory'])}" for gpu in machine.gpus)
    facts = {
        "host": machine.host,
        "system": machine.system,
        "kernel": machine.kernel,
        "CPUs": " ".join(filter(None, (str(machine.cpus or ""), machine.cpu_model))),
        "memory": format_size(machine.memory) if machine.memory else "",
        "GPUs": "; ".join(f"{count} x {one}" for one, count in named.items()),
        "GPU driver": ", ".join(dict.fromkeys(gpu["driver"] for gpu in machine.gpus)),
        "Python": machine.python,
    }
    return {name: printable_line(fact) for name, fact in facts.items() if fact}


def mask_references(text: str) -> str:
    """Replace the references to the secrets of a recorded config by a mask."""
    return SECRET_REFERENCE.sub(MASK, text) if REFERENCE_PREFIX in text else text


class _StreamedList(list[Any]):
    """Iterator that the JSON encoder accepts as a list and reads one element at a time."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._first = list(islice(items, 1))
        self._rest = items

    def __bool__(self) -> bool:
        return bool(self._first)

    def __iter__(self) -> Iterator[Any]:
        return chain(self._first, self._rest)


def format_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return aligned columns, with ``-`` for missing values.

    On a terminal, with ``det-core[cli]``, add colours and fold a long last column.
    """
    cells = [
        [printable_text(header).upper() for header in headers],
        *([format_value(cell) for cell in row] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty() and len(cells) < _MOST_DRAWN and has_extra("cli"):
        return _draw_table(cells, widths)
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _draw_table(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in cells[0]:
        drawn.add_column(Text(header), no_wrap=header != cells[0][-1], overflow="fold")
    for row in cells[1:]:
        drawn.add_row(*(Text(cell, STATE_COLORS.get(cell, "")) for cell in row))
    least = sum(width + 2 for width in widths[:-1]) + min(widths[-1], _LEAST)
    console = Console()
    console.width = max(console.width, least)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get().rstrip()


def join_sections(*texts: str) -> str:
    """Join blocks of text with blank lines between them. Empty blocks are omitted."""
    return "\n\n".join(block for block in texts if block)


def format_facts(pairs: Mapping[str, object]) -> str:
    """Return aligned lines of names and values. Pairs without a value are omitted."""
    shown = {
        printable_text(name): format_value(value) for name, value in pairs.items() if value not in (None, "", (), [])
    }
    width = max(map(len, shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def format_value(value: object) -> str:
    """Format one value for people, with times in the local zone and numbers with four significant digits."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return _local_time(value).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable_text(str(value))


def _local_time(moment: datetime) -> datetime:
    """Return a time in the local zone, or unchanged at the ends of the years 1 to 9999, which scripts can report."""
    try:
        return moment.astimezone()
    except OverflowError:
        return moment


def format_scalars(metrics: Mapping[str, Any], limit: int | None = None) -> str:
    """Format at most ``limit`` metrics in a line like ``loss=0.12 accuracy=0.97``. Nested values are omitted."""
    shown = [
        f"{printable_text(name)}={format_value(value)}"
        for name, value in metrics.items()
        if isinstance(value, (int, float, str))
    ]
    return " ".join(shown[:limit])


def format_size(count: int) -> str:
    """Format a number of bytes, such as ``1.2 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.4g} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def format_slot_hours(hours: float) -> str:
    """Format slot-hours with three significant digits, and whole ones from 100."""
    if hours >= 100 or not hours:
        return f"{hours:.0f}"
    return f"{hours:#.3g}".rstrip(".") if hours >= 0.001 else "< 0.001"


def format_uncounted_runs(number: int) -> str:
    """Describe the runs that a number of slot-hours leaves out, or return "" if it has all."""
    return f"without {format_count(number, 'run')} of unknown slots" if number else ""


def format_count(number: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun, such as ``1 trial`` or ``3 trials``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def split_failure(reason: str) -> dict[str, str]:
    """Return the parts of the reason for which the workers of a run failed: ``error``, and those that are known.

    The others are ``rank``, ``batch`` (number of the batch, from 0) and ``line`` (such as ``model_def.py:12``).

    Args:
        reason: reason as in `Run.end_reason`.
    """
    from det_core.core.failure_notes import PLACE  # most commands show no failure

    parts: dict[str, str] = {}
    if place := PLACE.search(reason):
        reason = reason[: place.start()]
        parts |= {"batch": place["batch"], "line": f"{place['file']}:{place['line']}"}
    if rank := _RANK.match(reason):
        reason = reason[rank.end() :]
        parts["rank"] = rank[1]
    return {"error": reason, **parts}


def format_log_line(line: LogLine) -> str:
    """Format a log line like ``[trial 1] [rank=0] text``. Lines of the runner itself have no rank."""
    rank = "" if line.stdtype == "det" else f" [rank={line.rank}]"
    return f"[trial {line.trial_id}]{rank} {printable_line(line.log)}"
