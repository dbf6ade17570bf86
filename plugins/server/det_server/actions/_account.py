"""Actions of people on their own accounts."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_core.interfaces.account_records import TokenScope
from det_server._access import now, role_of_scope
from det_server._accounts import accounts_of, make_change, require_session
from det_server._forms import read_form
from det_server._passwords import hash_password
from det_server._refusal import RefusedError
from det_server._rendering import render_page
from det_server._site import principal_of, site_of
from det_server.actions._sessions import check_password, start_session

_LONGEST_LABEL = 100
_DEFAULT_DAYS = "90"
_MOST_DAYS = 366


def create_token(request: Request) -> Response:
    """Create an API token, and show its secret for the only time."""
    require_session(request)
    principal, form = principal_of(request), read_form(request)
    label, scope, days = form.get("label"), form.get("scope").upper(), form.get("days") or _DEFAULT_DAYS
    if len(label) > _LONGEST_LABEL:
        raise RefusedError(400, f"the label is longer than {_LONGEST_LABEL} characters")
    if scope not in TokenScope.__members__ or not role_of_scope(TokenScope[scope], principal.role):
        raise RefusedError(
            400, f"scope: expected read, write or admin, at most what {principal.role} may, got {scope:.20}"
        )
    if not days.isdecimal() or not 1 <= int(days) <= _MOST_DAYS:
        raise RefusedError(400, f"days: expected 1 to {_MOST_DAYS}, got {days:.20}")
    accounts = accounts_of(request)
    accounts.login.count_change(principal.name)
    expires = now() + timedelta(days=int(days))
    create = partial(accounts.create_api_token, principal.name, TokenScope[scope], label, expires)
    secret = make_change(request, "create token", label, create)
    return render_page(request, "token_created.html", secret=secret, label=label, expires=expires)


def delete_token(request: Request) -> Response:
    """Delete one of the caller's own tokens."""
    require_session(request)
    accounts_of(request)
    token_id, store, principal = request.path_params["token_id"], site_of(request).store, principal_of(request)
    if token_id not in (token.id for token in store.access_tokens(principal.name, before=token_id + 1, limit=1)):
        raise RefusedError(404, f"{principal.name} has no token {token_id}")
    make_change(request, "delete token", f"token {token_id}", lambda: store.delete_access_token(token_id))
    return RedirectResponse("/account", 303)


def change_password(request: Request) -> Response:
    """Change the caller's password, which ends all sessions and tokens, and begin a new session."""
    require_session(request)
    accounts_of(request)
    principal, form = principal_of(request), read_form(request)
    check_password(request, principal.name, form.password("old"))
    hashed = hash_password(form.password("password"))
    edit = partial(site_of(request).store.edit_user, principal.name, password=hashed)
    make_change(request, "change password", f"user {principal.name}", edit)
    response = RedirectResponse("/account", 303)
    start_session(request, response, principal.name, hashed)
    return response
