"""Endpoint that executes calls of the tracking store."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote import answer_call
from det_server._accounts import record_action
from det_server._permissions import check_method
from det_server._persons_store import PersonsStore
from det_server._site import principal_of, site_of

CALL_ID = "det-call-id"
"""Header with the id of a call, by which a repeated one takes effect once."""


def call_store(request: Request) -> Response:
    """Answer with the result or the error of a call, in the encoding of `det_core.tracking.remote`."""
    site, principal = site_of(request), principal_of(request)
    method = request.path_params["method"]
    store = site.store
    if principal.run is None:
        check_method(principal, method)
        owner = principal.name if site.has_users else None
        person = PersonsStore(store, owner, lambda action, target: record_action(request, action, target))
        store = cast("TrackingStore", person)
    answer = answer_call(store, method, request.state.body, access=principal.run, call_id=request.headers.get(CALL_ID))
    return Response(answer, media_type="application/octet-stream")
