"""JSON in answers."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class JsonResponse(JSONResponse):
    """JSON in ASCII, because recorded text may have characters that UTF-8 lacks, such as half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the answer."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
