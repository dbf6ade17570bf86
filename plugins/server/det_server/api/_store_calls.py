"""Endpoint that executes calls of the tracking store."""

from __future__ import annotations

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
    call_id = request.headers.get(CALL_ID)
    answer = answer_call(
        site_of(request).store,
        name,
        request.state.body,
        caller=caller,
        call_id=call_id,
        is_admitted=request.state.is_admitted,
    )
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
