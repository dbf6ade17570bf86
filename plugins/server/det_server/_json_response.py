"""JSON in answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import JSONResponse


class JsonResponse(JSONResponse):
    """JSON in ASCII, because recorded text may have characters that UTF-8 lacks, such as half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the answer. Items are encoded one by one, because no other thread runs meanwhile."""
        return b"".join(text.encode() for text in _pieces(content, levels=2))


def _pieces(value: Any, levels: int) -> Iterator[str]:
    """Yield the JSON of a value in pieces, which are the items of its mappings and lists down to a level."""
    if not levels or not value or not isinstance(value, dict | list):
        yield json.dumps(value, allow_nan=False, separators=(",", ":"))
        return
    brackets = "{}" if isinstance(value, dict) else "[]"
    for number, item in enumerate(value):
        yield "," if number else brackets[0]
        if isinstance(value, dict):
            yield f"{json.dumps(item)}:"
        yield from _pieces(value[item] if isinstance(value, dict) else item, levels - 1)
    yield brackets[1]
