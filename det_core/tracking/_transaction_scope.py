"""Scope in which the transactions of a thread stay open, so that their last one can get an addition."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection


class TransactionScope(Protocol):
    """Owner of the transactions for writing that a thread opens."""

    def join(self, transaction: AbstractContextManager[Connection]) -> AbstractContextManager[Connection]:
        """Return a context manager that enters a transaction, and leaves it open if its block ends without an error."""


current_scope: ContextVar[TransactionScope | None] = ContextVar("det_transaction_scope", default=None)
"""Scope of the present thread, or None if each transaction is committed at the end of its block."""
