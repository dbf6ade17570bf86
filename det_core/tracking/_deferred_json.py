"""JSON of records that is decoded only if somebody looks into it."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping
from functools import cached_property
from typing import Any

from det_core.errors import StoreCorrupt
from det_core.tracking.reading_limits import count_read_json


def load_json_value(text: str) -> Any:
    """Return the value that `dump_json_value` encoded.

    Raises:
        StoreCorrupt: the text is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreCorrupt(
            f"a value in the database is not valid JSON ({error}): restore the database from a backup"
        ) from error


class DeferredJson(Mapping[str, Any]):
    """JSON object that is decoded on first access. It counts for `limited_reading`."""

    def __init__(self, text: str) -> None:
        count_read_json(text)
        self.text = text
        """The object as `dump_json_value` has encoded it."""

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    @cached_property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = load_json_value(self.text)
        return values


class BriefJson(DeferredJson):
    """JSON object of a list. It does not count, or whoever writes many would keep others from reading the list."""

    def __init__(self, text: str) -> None:  # without that of the base class, which counts
        self.text = text


class ManyJson(BriefJson):
    """JSON object of which a list has many, which is decoded anew on each access, so that few are in memory."""

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    @property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = load_json_value(self.text)
        return values
