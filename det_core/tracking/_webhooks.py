"""Webhooks in the tracking store, and the events that wait for their delivery.

An event is written in the transaction that changes the state, so no kill comes between the two. It is deleted once its
receiver has confirmed it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, and_, delete, func, select, update

from det_core.errors import RecordExists
from det_core.interfaces.records import State
from det_core.interfaces.webhook_records import WEBHOOK_STATES, Delivery, WebhookFormat, WebhookRecord
from det_core.tracking._column_types import make_writable, utc_now
from det_core.tracking._rows import StoreMixin, fetch_only_row, get_experiment, insert_row
from det_core.tracking._schema import deliveries, webhooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row, Select

    from det_core.interfaces.records import ExperimentRecord

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_CLAIM_SECONDS = 60.0
"""Time after which another process repeats an attempt whose process has not reported its result."""
_LARGEST_EVENT_TEXT = 1000
"""Number of characters of names and errors in an event."""


class WebhooksMixin(StoreMixin):
    """Methods of the tracking store for webhooks."""

    def create_webhook(
        self, name: str, *, url: str, key: str, format: WebhookFormat, states: Sequence[State], private: bool
    ) -> WebhookRecord:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"the name {name!r:.100} of a webhook is invalid; expected 1 to 64 letters, digits and ._@-"
            )
        if unknown := [state for state in states if state not in WEBHOOK_STATES]:
            raise ValueError(f"webhooks cannot announce {unknown[0]}; expected some of {', '.join(WEBHOOK_STATES)}")
        values = {"name": name, "url": url, "key": key, "format": format, "states": list(states), "private": private}
        with self._database.write(alone=True, durable=True) as connection:
            if connection.execute(select(webhooks.c.id).where(webhooks.c.name == name)).first():
                raise RecordExists(f"there is a webhook {name!r} already; choose another name")
            created = insert_row(connection, webhooks, {**values, "creation_time": utc_now(), "error": ""})
            return _record(connection.execute(_select_webhooks().where(webhooks.c.id == created)).one())

    def webhooks(self) -> list[WebhookRecord]:
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(_select_webhooks().order_by(webhooks.c.name))]

    def delete_webhook(self, name: str) -> None:
        # Locked, so that no change of state adds an event meanwhile.
        query = select(webhooks.c.id).where(webhooks.c.name == name).with_for_update()
        with self._database.write(durable=True) as connection:
            webhook_id = fetch_only_row(connection, query, f"webhook {name!r}").id
            connection.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook_id))
            connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))

    def claim_delivery(self, webhook_ids: Sequence[int]) -> Delivery | None:
        clock = self._database.clock
        same = deliveries.alias()
        # A webhook gets its events in order, so those after one that waits or is on its way are not due.
        oldest = select(func.min(same.c.id)).where(same.c.webhook_id == deliveries.c.webhook_id).scalar_subquery()
        is_due = and_(
            deliveries.c.webhook_id.in_(webhook_ids), deliveries.c.next_attempt <= clock, deliveries.c.id == oldest
        )
        due = select(deliveries.c.id).where(is_due).order_by(deliveries.c.id).limit(1)
        with self._database.read() as connection:
            if connection.execute(due).first() is None:  # most calls end here, and write nothing
                return None
        claim = (
            update(deliveries)
            .where(deliveries.c.id == due.scalar_subquery(), is_due)
            .values(next_attempt=clock + _CLAIM_SECONDS, attempts=deliveries.c.attempts + 1)
            .returning(*deliveries.c)
        )
        with self._database.write() as connection:
            row = connection.execute(claim).one_or_none()
            if row is None:
                return None
            webhook = connection.execute(_select_webhooks().where(webhooks.c.id == row.webhook_id)).one()
            return Delivery(id=row.id, webhook=_record(webhook), event=row.event, time=row.time, attempts=row.attempts)

    def confirm_delivery(self, delivery: Delivery, *, error: str = "") -> None:
        with self._database.write() as connection:
            connection.execute(delete(deliveries).where(deliveries.c.id == delivery.id))
            _note_error(connection, delivery, error)

    def postpone_delivery(self, delivery: Delivery, *, seconds: float, error: str) -> None:
        later = update(deliveries).where(deliveries.c.id == delivery.id)
        if not delivery.webhook.error:
            later = later.values(time=utc_now())
        with self._database.write() as connection:
            connection.execute(later.values(next_attempt=self._database.clock + seconds))
            _note_error(connection, delivery, error)


def announce_state(connection: Connection, experiment_id: int, state: State) -> None:
    """Write the events of a new state, if it is one. Call this before the state is changed.

    Args:
        connection: connection with the transaction that changes the state.
        experiment_id: the experiment.
        state: its new state.
    """
    # The locks keep webhooks from being deleted until the events are committed.
    query = select(webhooks.c.id, webhooks.c.states).order_by(webhooks.c.id).with_for_update(read=True, key_share=True)
    rows = connection.execute(query).all()
    receivers = [row.id for row in rows if state in row.states]
    if not receivers:
        return
    experiment = get_experiment(connection, experiment_id)
    if experiment.state is state:
        return
    time = utc_now()
    for receiver in receivers:
        event = {"event_id": str(uuid.uuid4()), **_describe(experiment, state, int(time.timestamp()))}
        values = {"webhook_id": receiver, "event": event, "time": time, "attempts": 0, "next_attempt": 0.0}
        insert_row(connection, deliveries, values)


def _describe(experiment: ExperimentRecord, state: State, now: int) -> Mapping[str, Any]:
    """Return the event with the names of Determined's webhooks."""
    resources = experiment.config.get("resources")
    slots = resources.get("slots_per_trial") if isinstance(resources, Mapping) else None
    return {
        "event_type": "EXPERIMENT_STATE_CHANGE",
        "timestamp": now,
        "condition": {"state": state.value},
        "event_data": {
            "experiment": {
                "id": experiment.id,
                "state": state.value,
                "name": experiment.name[:_LARGEST_EVENT_TEXT],
                "owner": experiment.owner[:_LARGEST_EVENT_TEXT],
                "duration": max(0, now - int(experiment.start_time.timestamp())),
                "slots_per_trial": slots if isinstance(slots, int) else 1,
                "workspace": str(experiment.config.get("workspace") or "")[:_LARGEST_EVENT_TEXT],
                "project": str(experiment.config.get("project") or "")[:_LARGEST_EVENT_TEXT],
            }
        },
    }


def _select_webhooks() -> Select[Any]:
    waiting = select(func.count()).where(deliveries.c.webhook_id == webhooks.c.id).scalar_subquery()
    return select(*webhooks.c, waiting.label("waiting"))


def _record(row: Row[Any]) -> WebhookRecord:
    return WebhookRecord(**{**row._mapping, "states": [State(state) for state in row.states]})


def _note_error(connection: Connection, delivery: Delivery, error: str) -> None:
    text = make_writable(error)
    noted = update(webhooks).where(webhooks.c.id == delivery.webhook.id, webhooks.c.error != text)
    connection.execute(noted.values(error=text))
