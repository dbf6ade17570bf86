"""Interface of the users, access tokens and audit log in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from det_core.interfaces.account_records import (
    AccessTokenRecord,
    ActionRecord,
    Role,
    TokenKind,
    TokenScope,
    UserRecord,
)


class AccountStore(ABC):
    """The part of a `TrackingStore` that handles users, their access tokens, and the audit log.

    Passwords and tokens are hashed by the caller.
    """

    @abstractmethod
    def create_user(self, name: str, *, role: Role, password: str) -> UserRecord:
        """Record a new, active user.

        Args:
            name: 1 to 64 letters of ASCII, digits and ``._@-``.
            role: the role.
            password: hash of the password. With an empty string, the user cannot log in.

        Raises:
            RecordExists: the name is in use.
            ValueError: the name has other characters or another length.
        """

    @abstractmethod
    def user(self, name: str) -> UserRecord:
        """Return one user."""

    @abstractmethod
    def users(self) -> list[UserRecord]:
        """Return all users by name."""

    @abstractmethod
    def password_hash(self, name: str) -> str:
        """Return the hash of a user's password, or an empty string if the user cannot log in."""

    @abstractmethod
    def edit_user(
        self, name: str, *, role: Role | None = None, password: str | None = None, active: bool | None = None
    ) -> UserRecord:
        """Change a user. None leaves a value unchanged.

        A new password and ``active=False`` delete the user's access tokens, which ends all sessions.

        Returns:
            The changed user.

        Raises:
            RecordInUse: the user is the last active admin, and would no longer be one.
        """

    @abstractmethod
    def add_access_token(
        self,
        digest: str,
        *,
        user: str,
        kind: TokenKind,
        scope: TokenScope,
        label: str = "",
        expires: datetime | None = None,
        trial_id: int | None = None,
        run_id: int | None = None,
    ) -> AccessTokenRecord:
        """Record a new access token, and delete those that have expired.

        Args:
            digest: hash of the token's secret, 64 hexadecimal digits.
            user: name of the user, or an empty string for a run that belongs to no user.
            kind: kind of the token.
            scope: limit of the role.
            label: purpose of the token.
            expires: time from which it is invalid, or None if that is never.
            trial_id: trial of a token of the kind `TokenKind.RUN`.
            run_id: run of a token of the kind `TokenKind.RUN`.

        Raises:
            RecordNotFound: there is no such user, or the user is not active.
            RecordExists: there is a token with this digest.
            ValueError: the digest is not one, or ``user``, ``trial_id`` and ``run_id`` do not fit ``kind``.
        """

    @abstractmethod
    def access_token(self, digest: str) -> AccessTokenRecord:
        """Return the token with this digest.

        Raises:
            RecordNotFound: it is unknown or has expired, or its user is not active.
        """

    @abstractmethod
    def access_tokens(self, user: str | None = None) -> list[AccessTokenRecord]:
        """Return the valid tokens in the order of their creation.

        Args:
            user: include only tokens of this user.
        """

    @abstractmethod
    def extend_access_token(self, token_id: int, *, expires: datetime) -> None:
        """Change the time from which a token is invalid. Do nothing if it does not exist or has expired."""

    @abstractmethod
    def delete_access_token(self, token_id: int) -> None:
        """Delete a token, if it exists, so that it is no longer valid."""

    @abstractmethod
    def record_action(self, *, user: str, action: str, target: str, address: str = "") -> None:
        """Append an entry to the audit log.

        Args:
            user: name of the user.
            action: name of the action, such as ``pause``.
            target: object of the action, such as ``experiment 12``.
            address: network address of the client.
        """

    @abstractmethod
    def actions(self, *, before: int | None = None, limit: int = 100) -> list[ActionRecord]:
        """Return entries of the audit log, newest first.

        Args:
            before: include only ids less than this.
            limit: maximum number of entries.
        """
