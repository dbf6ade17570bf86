"""JSON of records that is decoded only if somebody looks into it."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Any

from det_core.json_values import EncodedJson, load_json_value
from det_core.tracking.reading_limits import count_read_json


class DeferredJson(EncodedJson):
    """JSON object that counts for `limited_reading`.

    The objects of lists do not, or whoever writes many would keep others from reading the list.
    """

    def __init__(self, text: str) -> None:
        count_read_json(text)
        super().__init__(text)


class ManyJson(EncodedJson):
    """JSON object of which a list has many, which is decoded anew on each access, so that few are in memory."""

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    @property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = load_json_value(self.text)
        return values
