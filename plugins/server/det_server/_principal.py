"""The caller of a request, with its rights."""

from __future__ import annotations

from dataclasses import dataclass

from det_core.interfaces.account_records import Role
from det_core.tracking.remote import RunAccess


@dataclass(frozen=True)
class Principal:
    """Caller of a request.

    Args:
        name: name of the user.
        role: role of the user, or a weaker one to which the token is limited.
        run: the run of a trial whose workers call. They may call the tracking store only, within these limits.
        token_id: id of the access token that the caller presented, or None if it is not in the tracking store.
    """

    name: str
    role: Role
    run: RunAccess | None = None
    token_id: int | None = None

    @property
    def may_write(self) -> bool:
        """Whether the caller may change experiments and models."""
        return self.run is None and self.role.includes(Role.USER)

    @property
    def is_admin(self) -> bool:
        """Whether the caller may manage users and read the audit log."""
        return self.run is None and self.role.includes(Role.ADMIN)
