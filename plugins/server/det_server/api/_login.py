"""Endpoints that create and delete access tokens for programs."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from det_core.errors import RecordNotFound
from det_core.interfaces.account_records import TokenScope
from det_server._access import LocalAccess, now
from det_server._accounts import accounts_of, end_token, make_change, require_ownership, require_writer
from det_server._credentials import bearer_token
from det_server._json_response import JsonResponse
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of
from det_server.api._json_body import JsonBody

_LIFE = timedelta(days=30)
"""Time after which the token of ``det login`` is invalid."""


def log_in(request: Request) -> Response:
    """Return a token for a user and a password, or that of the only user for the token of the printed URL.

    It outlasts the session of a browser, and most trainings.
    """
    body, access = JsonBody(request), site_of(request).access
    if isinstance(access, LocalAccess) and (link := body.get("link", str, None)):
        if access.admit_link(link) is None:
            raise RefusedError(401, "the token is not that of the URL that det server has printed")
        return JsonResponse({"token": access.command_line_token, "expires": None})
    user, password = body.get("user", str), body.get("password", str)
    accounts = accounts_of(request)
    hashed = accounts.login.check(user, password, request.state.address, partial(_find_device, request, user))
    expires = now() + _LIFE
    created = accounts.create_api_token(user, TokenScope.ADMIN, "det login", expires, hashed)
    return JsonResponse({"token": created, "expires": expires.isoformat()})


def known_user(request: Request) -> str:
    """Return the name in a login if the client has a token of that user, or an empty string."""
    user = JsonBody(request).get("user", str, "") or ""
    return user if _find_device(request, user) else ""


def _find_device(request: Request, user: str) -> str:
    """Return the id of the token of that user that the client has, or an empty string."""
    token, before = bearer_token(request.headers), None
    with suppress(RecordNotFound):  # of the run that the token is for
        before = site_of(request).access.admit_bearer(token) if token else None
    return f"token {before.token_id}" if before and before.name == user and before.run is None else ""


def log_out(request: Request) -> Response:
    """Delete the token that the request carries."""
    make_change(request, "logout", "", lambda: end_token(request))
    return JsonResponse({})


def create_run_token(request: Request) -> Response:
    """Create a token for the workers of a run."""
    require_writer(request)
    body = JsonBody(request)
    trial_id, run_id = body.get("trial_id", int), body.get("run_id", int)
    require_ownership(request, "a token for its workers", trial_id=trial_id)
    create = partial(site_of(request).access.create_run_token, principal_of(request), trial_id, run_id)
    token = make_change(request, "create run token", f"trial {trial_id}", create)
    return JsonResponse({"token": token})
