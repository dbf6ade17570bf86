"""Accounts of a server, and the record of who did what."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from det_core.errors import RecordNotFound, TrackingError
from det_core.interfaces.server_store import Action, Change
from det_core.tracking.remote import Caller
from det_server._access import AccountAccess
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of

T = TypeVar("T")

ADMISSION_SECONDS = 1.0
"""Time after which the credentials of a request are checked again, if it waits or its answer is being sent."""


def accounts_of(request: Request) -> AccountAccess:
    """Return the accounts of a server on which people log in.

    Raises:
        RefusedError: nobody logs in on this server.
    """
    access = site_of(request).access
    if not isinstance(access, AccountAccess):
        raise RefusedError(404, "this server has no users; to start one that has: det server --users")
    return access


def require_writer(request: Request) -> None:
    """Check that the caller may change experiments and models.

    Raises:
        RefusedError: the caller may only read.
    """
    principal = principal_of(request)
    if not principal.may_write:
        raise RefusedError(
            403, f"{principal.name} has the role {principal.role} here, and changes need USER; ask an admin for it"
        )


def require_admin(request: Request) -> None:
    """Check that the caller may manage users.

    Raises:
        RefusedError: the caller is no admin.
    """
    principal = principal_of(request)
    if not principal.is_admin:
        raise RefusedError(
            403, f"{principal.name} has the role {principal.role} here, and users are managed by an ADMIN"
        )


def require_admission(request: Request) -> None:
    """Check that the session or token of the caller has not ended since the request began.

    Raises:
        RefusedError: it has.
    """
    if not request.state.is_admitted():
        raise RefusedError(401, "your session or token has ended, so nothing was changed; log in again")


def require_recent_admission(request: Request) -> None:
    """Check the same if the request has waited or its work has taken a while.

    Raises:
        RefusedError: the session or token has ended.
    """
    late = time.monotonic() - request.state.admitted_at > ADMISSION_SECONDS
    if late and hasattr(request.state, "is_admitted"):
        require_admission(request)


def require_session(request: Request) -> None:
    """Check that a person has logged in with a browser, so that a token cannot create others that outlive it.

    Raises:
        RefusedError: the caller uses a token.
    """
    if not getattr(request.state, "by_cookie", False):
        raise RefusedError(403, "accounts cannot be changed with a token; log in with a browser")


def end_token(request: Request) -> None:
    """Delete the session or token that a request carries, unless it is one that is not in the tracking store."""
    principal = getattr(request.state, "principal", None)
    if principal is not None and principal.token_id is not None:
        site_of(request).store.delete_access_token(principal.token_id)


def require_ownership(request: Request, what: str, **record: object) -> None:
    """Check that a record belongs to the caller, as `Caller.require_ownership` does.

    Raises:
        RefusedError: it belongs to somebody else.
    """
    try:
        caller_of(request).require_ownership(site_of(request).store, what, **record)
    except RecordNotFound:
        raise
    except TrackingError as error:
        raise RefusedError(403, str(error)) from None


def caller_of(request: Request) -> Caller:
    """Return the caller of a request as that of the tracking store."""
    principal = principal_of(request)
    return Caller(
        user=principal.name,
        role=principal.role,
        run=principal.run,
        owns_all=not site_of(request).has_users,
        address=request.state.address,
    )


def record_action(request: Request, name: str, target: str) -> None:
    """Record in the audit log what the caller is about to do that is no change of records, such as to start a runner.

    Raises:
        RefusedError: the session or token of the caller has ended since the request began.
    """
    store = site_of(request).store

    def record(recorded: Change) -> None:
        recorded.confirm = partial(require_admission, request)
        store.record_action(_action(request, name, target))

    store.execute(record)


def make_change(request: Request, name: str, target: str | Callable[[T], str], change: Callable[[], T]) -> T:
    """Change records as the caller asks, together with an entry in the audit log, and return the result.

    Args:
        request: the request.
        name: name of the action.
        target: object of the action, or a function of the result if only that tells.
        change: function that changes records.

    Raises:
        RefusedError: the session or token of the caller has ended since the request began. Nothing is changed.
    """

    action = _action(request, name, target if isinstance(target, str) else "")

    def make(recorded: Change) -> T:
        recorded.action = action
        recorded.confirm = partial(require_admission, request)
        result = change()
        if not isinstance(target, str):
            action.target = target(result)
        return result

    return site_of(request).store.execute(make)


def _action(request: Request, name: str, target: str) -> Action:
    return Action(principal_of(request).name, name, target, request.state.address)
