"""Answers to requests that are refused before an endpoint sees them."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import PlainTextResponse, Response

from det_server._json_response import JsonResponse

API = "/api/"
"""Beginning of the paths of the API, whose errors are JSON."""
UNUSABLE_STORE = "the tracking store cannot be used at the moment; the log of the server says why"
"""Message for those whose credentials cannot be checked therefore, and who may be strangers."""


class RefusedError(Exception):
    """Refusal of a request.

    Args:
        status: HTTP status of the answer.
        message: what was wrong, what was expected, and what to do next.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers

    def response(self, path: str) -> Response:
        """Return the answer, as JSON below `API` and else as text."""
        if path.startswith(API):
            return JsonResponse({"error": str(self)}, self.status, self.headers)
        return PlainTextResponse(f"{self}\n", self.status, self.headers)
