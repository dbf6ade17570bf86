"""Accounts of a server, and the record of who did what."""

from __future__ import annotations

from starlette.requests import Request

from det_server._access import AccountAccess
from det_server._refusal import RefusedError
from det_server._site import principal_of, site_of


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


def require_session(request: Request) -> None:
    """Check that a person has logged in with a browser, so that a token cannot create others that outlive it.

    Raises:
        RefusedError: the caller uses a token.
    """
    if not getattr(request.state, "by_cookie", False):
        raise RefusedError(403, "accounts cannot be changed with a token; log in with a browser")


def record_action(request: Request, action: str, target: str) -> None:
    """Record what the caller did in the audit log."""
    site_of(request).store.record_action(
        user=principal_of(request).name, action=action, target=target[:200], address=request.state.address
    )
