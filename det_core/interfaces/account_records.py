"""Records of users, access tokens and recorded actions in the tracking store.

Times are UTC and timezone-aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["AccessTokenRecord", "ActionRecord", "Role", "TokenKind", "TokenScope", "UserRecord"]

MAX_TOKENS = 1000
"""Maximum number of sessions of a user, and of tokens for programs. Pages list them."""


class Role(str, Enum):
    """Roles of users, most powerful first."""

    ADMIN = "ADMIN"
    """May do everything, and manages the users."""
    USER = "USER"
    """May read everything except users, create records, and change them; deleting needs the owner."""
    VIEWER = "VIEWER"
    """May only read."""

    def includes(self, other: Role) -> bool:
        """Return whether this role is as powerful as another one, or more."""
        order = list(Role)
        return order.index(self) <= order.index(other)

    def __str__(self) -> str:
        return self.value


class TokenKind(str, Enum):
    """Kinds of access tokens."""

    SESSION = "SESSION"
    """Created by a login, and deleted by a logout."""
    API = "API"
    """Created by a user for scripts."""
    RUN = "RUN"
    """Created for the workers of one run of a trial."""

    def __str__(self) -> str:
        return self.value


class TokenScope(str, Enum):
    """Scopes of access tokens, which limit the role of their user."""

    READ = "READ"
    """Permits what a viewer may do."""
    WRITE = "WRITE"
    """Permits what a user may do."""
    ADMIN = "ADMIN"
    """Permits what an admin may do."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class UserRecord:
    """A user of the server, without the password."""

    id: int
    """Id assigned by the store."""
    name: str
    """Unique name."""
    role: Role
    """Present role."""
    active: bool
    """Whether the user may log in and use tokens."""
    creation_time: datetime
    """Time at which the user was created."""


@dataclass(frozen=True, kw_only=True)
class AccessTokenRecord:
    """A valid access token, of which the store has only a digest of the secret."""

    id: int
    """Id assigned by the store, which is never given to another token."""
    user: str
    """Name of its user, or an empty string for the token of a run that belongs to no user."""
    role: Role
    """Present role of the user. Without a user, `Role.USER`."""
    kind: TokenKind
    """Kind of the token."""
    scope: TokenScope
    """Limit of the role."""
    label: str
    """Purpose of the token, as its user wrote it."""
    trial_id: int | None
    """Trial of a token of the kind `TokenKind.RUN`."""
    run_id: int | None
    """Run of a token of the kind `TokenKind.RUN`."""
    creation_time: datetime
    """Time at which it was created."""
    expires: datetime | None
    """Time from which it is invalid, or None if that is never."""


@dataclass(frozen=True, kw_only=True)
class ActionRecord:
    """An entry of the audit log."""

    id: int
    """Id assigned by the store, ascending."""
    time: datetime
    """Time at which it was recorded."""
    user: str
    """Name of the user, who may no longer exist."""
    action: str
    """Name of the action, such as ``pause``."""
    target: str
    """Object of the action, such as ``experiment 12``."""
    address: str
    """Network address of the client, or an empty string if it is unknown."""
