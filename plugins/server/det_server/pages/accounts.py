"""Pages of users, their access tokens, and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.account_records import ActionRecord, Role, TokenKind
from det_core.interfaces.tracking import TrackingStore
from det_server._accounts import accounts_of, require_admin
from det_server._csv_export import csv_response
from det_server._rendering import render_page
from det_server._site import principal_of
from det_server.pages._store_values import parse_number, store_of

_ACTIONS_PER_PAGE = _TOKENS_PER_PAGE = 100
_ACTIONS_AT_ONCE = 1000
"""Number of entries that an export has in memory."""
_MOST_EXPORTED = 100_000
_COLUMNS = ("id", "time", "user", "action", "target", "address")


def show_users(request: Request) -> Response:
    """Show the users to an administrator."""
    require_admin(request)
    return render_page(request, "users.html", users=store_of(request).users(), roles=list(Role))


def show_account(request: Request) -> Response:
    """Show the caller's access tokens."""
    accounts_of(request)
    before, name = _before(request), principal_of(request).name
    tokens = store_of(request).access_tokens(name, before=before, limit=_TOKENS_PER_PAGE)
    older = tokens[0].id if len(tokens) == _TOKENS_PER_PAGE else None
    return render_page(
        request, "account.html", tokens=tokens[::-1], kinds=TokenKind, older=older, newest=before is None
    )


def show_audit(request: Request) -> Response:
    """Show a page of the audit log to an administrator, the newest entries first."""
    require_admin(request)
    before = _before(request)
    actions = store_of(request).actions(before=before, limit=_ACTIONS_PER_PAGE)
    older = actions[-1].id if len(actions) == _ACTIONS_PER_PAGE else None
    return render_page(request, "audit.html", actions=actions, older=older, newest=before is None)


def export_audit(request: Request) -> Response:
    """Return the audit log as CSV, the newest entries first."""
    require_admin(request)
    entries = ([getattr(one, name) for name in _COLUMNS] for one in _newest_actions(store_of(request)))
    return csv_response("audit.csv", _COLUMNS, islice(entries, _MOST_EXPORTED))


def _newest_actions(store: TrackingStore) -> Iterator[ActionRecord]:
    before = None
    while actions := store.actions(before=before, limit=_ACTIONS_AT_ONCE):
        yield from actions
        before = actions[-1].id


def _before(request: Request) -> int | None:
    """Return the id before which a page of a list ends, or None if it is the first page."""
    return parse_number(request.query_params.get("before", ""), default=0, most=2**62) or None


ROUTES = [
    Route("/users", show_users),
    Route("/account", show_account),
    Route("/audit", show_audit),
    Route("/audit.csv", export_audit),
]
