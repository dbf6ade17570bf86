"""Endpoints that change one record, and lead back to its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_core.interfaces.tracking import TrackingStore
from det_server._accounts import make_change, require_writer
from det_server._site import site_of

Endpoint = Callable[[Request], Response]
Change = Callable[[Request, TrackingStore, int], object]
"""Function that changes the record with this id as the form of the request asks for."""


def make_endpoints(kind: str, changes: Mapping[str, Change]) -> dict[str, Endpoint]:
    """Return endpoints by path, such as ``/trials/{id:int}/kill``.

    Args:
        kind: kind of the records, such as ``trial``.
        changes: names of the actions mapped to what they do.
    """
    return {f"/{kind}s/{{id:int}}/{name}": _make_endpoint(kind, name, change) for name, change in changes.items()}


def _make_endpoint(kind: str, action: str, change: Change) -> Endpoint:
    def act(request: Request) -> Response:
        require_writer(request)
        record_id = request.path_params["id"]
        store = site_of(request).store
        make_change(request, action, f"{kind} {record_id}", lambda: change(request, store, record_id))
        return show(kind, record_id)

    return act


def show(kind: str, record_id: int) -> Response:
    """Lead to the page of a record."""
    return RedirectResponse(f"/{kind}s/{record_id}", 303)
