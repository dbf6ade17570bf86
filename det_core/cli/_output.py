"""Values as text, tables and JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

from det_core.interfaces.tracking import SECRET_REFERENCE, LogLine

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def print_json(value: object) -> None:
    """Print one JSON document: dates in ISO 8601, what JSON has no number for as text."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Records, mappings and sequences as what JSON knows; ``nan`` becomes ``"NaN"`` as on the wire."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return masked(value)
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def masked(text: str) -> str:
    """Without what stands for the secrets of a recorded config."""
    return SECRET_REFERENCE.sub("********", text)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns, the same on a terminal and in a pipe; missing values are ``-``."""
    cells = [[header.upper() for header in headers], *([text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def facts(pairs: Mapping[str, object]) -> str:
    """``name  value`` lines; those without a value are left out."""
    shown = {name: text(value) for name, value in pairs.items() if value not in (None, "", (), [])}
    width = max(map(len, shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def text(value: object) -> str:
    """One value for people: local times, four significant digits."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(str(value))


def scalars(metrics: Mapping[str, Any], limit: int | None = None) -> str:
    """``loss=0.12 accuracy=0.97``: the metrics that fit in a line, at most ``limit`` of them."""
    shown = [f"{name}={text(value)}" for name, value in metrics.items() if isinstance(value, (int, float, str))]
    return " ".join(shown[:limit])


def size(count: int) -> str:
    """A number of bytes: ``1.2 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.4g} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 trial``, ``3 trials``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def elapsed(start: datetime, end: datetime | None) -> timedelta:
    """How long it took, or has taken so far."""
    return (end or datetime.now(timezone.utc)) - start


def log_text(line: LogLine) -> str:
    """``[trial 1] [rank=0] text``; lines of the runner itself have no rank."""
    rank = "" if line.stdtype == "det" else f" [rank={line.rank}]"
    return f"[trial {line.trial_id}]{rank} {clean(line.log)}"


def clean(line: str) -> str:
    """Without colours, cursor movements and overwritten text, which would spoil a pipe or the live line."""
    visible = _ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2]
    return _CONTROLS.sub("", visible)
