"""Stream of live updates for an open page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from det_server._live_changes import Viewer
from det_server._live_rows import Topics
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.pages._store_values import parse_ids

_MOST_IDS = 300


async def stream_changes(request: Request) -> Response:
    """Send the changes of the experiments and trials that the query names, as server-sent events."""
    query = request.query_params
    topics = Topics(
        frozenset(parse_ids(query.get("experiments", ""), _MOST_IDS)),
        frozenset(parse_ids(query.get("trials", ""), _MOST_IDS)),
        query.get("list") == "1",
    )
    cursor = request.headers.get("last-event-id", "") or query.get("after", "")
    changes = site_of(request).changes
    viewer = Viewer(principal_of(request).name, request.state.is_admitted)
    if reason := changes.refusal(viewer):
        raise RefusedError(503, f"{reason}; close some, or reload this one by hand")
    events = changes.events(viewer, topics, cursor)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


ROUTES = [Route("/live", stream_changes)]
