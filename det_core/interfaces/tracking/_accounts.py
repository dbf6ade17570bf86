"""Interface of the users, access tokens and audit log in the tracking store, as admins use it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from det_core.interfaces.account_records import AccessTokenRecord, ActionRecord, Role, UserRecord
from det_core.interfaces.tracking._rights import reads_for_admins, writes


class AccountStore(ABC):
    """The part of a `TrackingStore` that shows users, their access tokens, and the audit log.

    What creates them is a `ServerStore`.
    """

    @reads_for_admins
    @abstractmethod
    def user(self, name: str) -> UserRecord:
        """Return one user."""

    @reads_for_admins
    @abstractmethod
    def users(self) -> list[UserRecord]:
        """Return all users by name."""

    @reads_for_admins
    @abstractmethod
    def access_tokens(
        self, user: str | None = None, *, before: int | None = None, limit: int | None = None
    ) -> list[AccessTokenRecord]:
        """Return the valid tokens in the order of their creation.

        Args:
            user: include only tokens of this user.
            before: include only ids less than this.
            limit: maximum number of tokens, the latest ones.
        """

    @writes(role=Role.ADMIN)
    @abstractmethod
    def delete_access_token(self, token_id: int) -> None:
        """Delete a token, if it exists, so that it is no longer valid."""

    @reads_for_admins
    @abstractmethod
    def actions(self, *, before: int | None = None, limit: int = 100) -> list[ActionRecord]:
        """Return entries of the audit log, newest first.

        Args:
            before: include only ids less than this.
            limit: maximum number of entries.
        """
