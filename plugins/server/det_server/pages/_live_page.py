"""Pages that follow what happens after they were rendered."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from det_server.pages._store_values import store_of


def live(show: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Return an endpoint that notes a cursor before it reads, so that its page misses nothing that happens later."""

    def run(request: Request) -> Response:
        request.state.cursor = store_of(request).changes().cursor
        return show(request)

    return run
