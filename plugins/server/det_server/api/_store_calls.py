"""Endpoint that executes calls of the tracking store."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response

from det_core.errors import TrackingError
from det_core.tracking.remote import Caller, answer_call, find_method, has_code, is_writing
from det_server._accounts import caller_of
from det_server._refusal import RefusedError
from det_server._site import site_of
from det_server._threads import Work, run_endpoint

CALL_ID = "det-call-id"
"""Header with the id of a call, by which a repeated one takes effect once."""


async def call_store(request: Request) -> Response:
    """Answer with the result or the error of a call, in the encoding of `det_core.tracking.remote`."""
    return await run_endpoint(_work(request.path_params["method"]), _answer, request)


def _work(name: str) -> Work:
    if has_code(name):
        return Work.CODE_CALLS
    return Work.WRITING_CALLS if is_writing(name) else Work.READING_CALLS


def _answer(request: Request) -> Response:
    name, caller = request.path_params["method"], caller_of(request)
    if caller.run is None:  # workers get the error of their store
        _check_method(caller, name)
    store, call_id = site_of(request).store, request.headers.get(CALL_ID)
    if call_id is not None:
        call_id = _own_lane(caller, call_id)
    answer = answer_call(store, name, request.state.body, caller=caller, call_id=call_id)
    return Response(answer, media_type="application/octet-stream")


def _check_method(caller: Caller, name: str) -> None:
    try:
        method = find_method(name)
    except TrackingError as error:
        raise RefusedError(404, str(error)) from None
    try:
        caller.check_method(method)
    except TrackingError as error:
        raise RefusedError(403, str(error)) from None


def _own_lane(caller: Caller, call_id: str) -> str:
    """Return the id of a call in a lane that no other caller has, whatever id another one sends."""
    lane, _, number = call_id.rpartition("-")
    digest = hashlib.sha256(f"{caller.user}~{caller.run}~{lane}".encode(errors="replace")).hexdigest()
    return f"{digest}-{number}" if lane else call_id
