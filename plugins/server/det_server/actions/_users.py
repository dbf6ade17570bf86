"""Actions of admins on users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from det_core.interfaces.account_records import Role, UserRecord
from det_server._accounts import accounts_of, make_change, require_admin, require_session
from det_server._forms import Form, read_form
from det_server._passwords import hash_password
from det_server._refusal import RefusedError
from det_server._site import site_of


def create_user(request: Request) -> Response:
    """Create a user."""
    _require(request)
    form = read_form(request)
    name, role = form.require("name"), _role(form)
    hashed = hash_password(form.password("password"))
    create = partial(site_of(request).store.create_user, name, role=role, password=hashed)
    return _change(request, f"create as {role}", name, create)


def set_role(request: Request) -> Response:
    """Change the role of a user."""
    _require(request)
    user, role = _user(request), _role(read_form(request))
    return _edit(request, f"set role {role}", user.name, role=role)


def set_password(request: Request) -> Response:
    """Change the password of a user, which ends all sessions and tokens of the user."""
    _require(request)
    user, password = _user(request), hash_password(read_form(request).password("password"))
    return _edit(request, "set password", user.name, password=password)


def set_active(action: str, active: bool) -> Callable[[Request], Response]:
    """Return an endpoint that lets a user log in or not.

    Args:
        action: name of the action in the audit log.
        active: whether the user may log in.
    """

    def change(request: Request) -> Response:
        _require(request)
        return _edit(request, action, _user(request).name, active=active)

    return change


def _require(request: Request) -> None:
    require_admin(request)
    require_session(request)
    accounts_of(request)


def _user(request: Request) -> UserRecord:
    user_id = request.path_params["user_id"]
    found = next((user for user in site_of(request).store.users() if user.id == user_id), None)
    if found is None:
        raise RefusedError(404, f"there is no user with the id {user_id}")
    return found


def _role(form: Form) -> Role:
    text = form.get("role").upper()
    if text not in Role.__members__:
        raise RefusedError(400, f"role: expected admin, user or viewer, got {text:.20}")
    return Role[text]


def _edit(request: Request, action: str, name: str, **values: Any) -> Response:
    return _change(request, action, name, partial(site_of(request).store.edit_user, name, **values))


def _change(request: Request, action: str, name: str, change: Callable[[], object]) -> Response:
    make_change(request, action, f"user {name}", change)
    return RedirectResponse("/users", 303)
