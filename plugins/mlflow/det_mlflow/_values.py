"""Conversion of names and values to those that MLflow accepts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

NAME_LENGTH = 250
PARAMETER_LENGTH = 6000
TAG_LENGTH = 5000
"""Limit of releases before 2.20. Newer ones accept 8000."""

_REFUSED = re.compile(r"[^/\w.\- :]")


def clean_name(name: str) -> str:
    """Return a name that MLflow accepts for a metric or parameter. Other characters become underscores.

    Args:
        name: any text.
    """
    parts = _REFUSED.sub("_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:NAME_LENGTH].rstrip("/") or "_"


class NameTable:
    """Names that MLflow accepts for the original ones. No two originals share one.

    Args:
        notify: function that is called once with a text about each name that changes or cannot be used.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._cleaned: dict[str, str | None] = {}
        self._taken: set[str] = set()

    def find(self, original: str) -> str | None:
        """Return the name for an original one, or None if another original has it already.

        Args:
            original: name in det.
        """
        if original not in self._cleaned:
            cleaned = clean_name(original)
            if cleaned in self._taken:
                self._notify(f"{original!r} is not recorded, because MLflow would name it {cleaned!r} like another one")
                self._cleaned[original] = None
            else:
                if cleaned != original:
                    self._notify(f"MLflow does not accept the name {original!r}; it is recorded as {cleaned!r}")
                self._cleaned[original] = cleaned
                self._taken.add(cleaned)
        return self._cleaned[original]


def flatten_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value in nested mappings with its keys, joined by dots.

    Args:
        values: the outermost mapping.
        prefix: text before each name.
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def format_parameter(value: Any) -> str:
    """Return the text of a hyperparameter.

    Args:
        value: JSON-compatible value.
    """
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, Mapping)) else str(value)


def format_number(value: Any) -> float | str | None:
    """Return the JSON that MLflow expects for the value of a metric, or None if it is not numeric.

    Args:
        value: JSON-compatible value, NaN or infinity.
    """
    try:
        number = float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None
    if number is None or math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
