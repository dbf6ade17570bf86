"""Endpoints that create and delete access tokens for programs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from det_server._access import LocalAccess
from det_server._accounts import accounts_of, require_writer
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.api._json_body import JsonBody


def log_in(request: Request) -> Response:
    """Create a session for a user and a password, or return the token of the only user for that of the printed URL."""
    body, access = JsonBody(request), site_of(request).access
    if isinstance(access, LocalAccess) and (link := body.get("link", str, None)):
        if access.admit_link(link) is None:
            raise RefusedError(401, "the token is not that of the URL that det server has printed")
        return JSONResponse({"token": access.command_line_token, "expires": None})
    user, password = body.get("user", str), body.get("password", str)
    accounts = accounts_of(request)
    accounts.login.check(user, password, request.state.address)
    token, expires = accounts.create_session(user)
    return JSONResponse({"token": token, "expires": expires.isoformat()})


def log_out(request: Request) -> Response:
    """Delete the token that the request carries."""
    principal = principal_of(request)
    if principal.token_id is not None and principal.run is None:
        site_of(request).store.delete_access_token(principal.token_id)
    return JSONResponse({})


def create_run_token(request: Request) -> Response:
    """Create a token for the workers of a run."""
    require_writer(request)
    body = JsonBody(request)
    trial_id, run_id = body.get("trial_id", int), body.get("run_id", int)
    token = site_of(request).access.create_run_token(principal_of(request), trial_id, run_id)
    return JSONResponse({"token": token})
