"""Records of webhooks and their deliveries in the tracking store.

Times are UTC and timezone-aware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from det_core.interfaces.records import State

__all__ = ["Delivery", "WebhookFormat", "WebhookRecord"]

WEBHOOK_STATES = (State.ACTIVE, State.PAUSED, State.COMPLETED, State.CANCELED, State.ERROR)
"""States of experiments that webhooks can announce."""


class WebhookFormat(str, Enum):
    """Formats of the bodies that a receiver gets."""

    DEFAULT = "DEFAULT"
    """JSON with the event, as `Delivery.event`."""
    SLACK = "SLACK"
    """A message, as incoming webhooks of Slack, Mattermost and others take it."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class WebhookRecord:
    """Receiver of events."""

    id: int
    """Id."""
    name: str
    """Name, which is unique."""
    url: str
    """URL, whose path is a reference to a secret."""
    key: str
    """Reference to the secret that signs requests."""
    format: WebhookFormat
    """Format of the bodies of requests."""
    states: Sequence[State]
    """States that are announced when an experiment enters them."""
    private: bool
    """Whether the receiver may have a private address."""
    creation_time: datetime
    """Time of its creation."""
    error: str
    """Why the last attempt failed, or an empty string."""
    waiting: int
    """Number of events that are not delivered yet."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One event on its way to one receiver."""

    id: int
    """Id."""
    webhook: WebhookRecord
    """The receiver."""
    event: Mapping[str, Any]
    """The event, which has the same ``event_id`` at each attempt."""
    time: datetime
    """Time of the event, or of its first failed attempt if those before it had arrived."""
    attempts: int
    """Number of attempts, including the present one."""


def secret_block(name: str, url: str, key: str) -> dict[str, Any]:
    """Return what the secrets of a webhook are kept for, as a block of a config."""
    return {"webhook": {"name": name, "url": url, "key": key}}
