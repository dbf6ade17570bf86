"""Audit log of a tracking store: who did what, and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, select

from det_core.interfaces.account_records import ActionRecord
from det_core.tracking._column_types import make_writable, utc_now
from det_core.tracking._rows import StoreMixin, fetch_records, record_columns
from det_core.tracking._schema import actions

if TYPE_CHECKING:
    from det_core.interfaces.server_store import Action

_LONGEST_TEXT = 200


class AuditLogMixin(StoreMixin):
    """Methods of the tracking store for the audit log."""

    def record_action(self, action: Action) -> None:
        with self._database.write(durable=True) as connection:
            insert_action(connection, action)

    def actions(self, *, before: int | None = None, limit: int = 100) -> list[ActionRecord]:
        query = select(*record_columns(actions, ActionRecord)).order_by(actions.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            older = query if before is None else query.where(actions.c.id < before)
            return fetch_records(connection, ActionRecord, older)


def insert_action(connection: Connection, action: Action) -> None:
    """Append an entry to the audit log."""
    texts = {"user": action.user, "action": action.name, "target": action.target, "address": action.address}
    values = {name: make_writable(text[:_LONGEST_TEXT]) for name, text in texts.items()}
    connection.execute(actions.insert().values(**values, time=utc_now()))
