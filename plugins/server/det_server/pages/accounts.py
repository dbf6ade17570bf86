"""Pages of users, their access tokens, and the audit log."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.account_records import ActionRecord, Role, TokenKind
from det_server._accounts import accounts_of, require_admin
from det_server._csv_export import csv_response
from det_server._rendering import render_page
from det_server._site import principal_of
from det_server.pages._store_values import store_of

_ACTIONS_PER_PAGE = 100
_MOST_EXPORTED = 100_000
_COLUMNS = ("id", "time", "user", "action", "target", "address")


def show_users(request: Request) -> Response:
    """Show the users to an administrator."""
    require_admin(request)
    return render_page(request, "users.html", users=store_of(request).users(), roles=list(Role))


def show_account(request: Request) -> Response:
    """Show the caller's access tokens."""
    accounts_of(request)
    tokens = store_of(request).access_tokens(principal_of(request).name)
    return render_page(request, "account.html", tokens=tokens, kinds=TokenKind)


def show_audit(request: Request) -> Response:
    """Show a page of the audit log to an administrator, the newest entries first."""
    require_admin(request)
    before = request.query_params.get("before", "")
    number = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
    actions = store_of(request).actions(before=number, limit=_ACTIONS_PER_PAGE)
    older = actions[-1].id if len(actions) == _ACTIONS_PER_PAGE else None
    return render_page(request, "audit.html", actions=actions, older=older, newest=number is None)


def export_audit(request: Request) -> Response:
    """Return the audit log as CSV, the newest entries first."""
    require_admin(request)
    actions: list[ActionRecord] = store_of(request).actions(limit=_MOST_EXPORTED)
    return csv_response("audit.csv", _COLUMNS, ([getattr(one, name) for name in _COLUMNS] for one in actions))


ROUTES = [
    Route("/users", show_users),
    Route("/account", show_account),
    Route("/audit", show_audit),
    Route("/audit.csv", export_audit),
]
