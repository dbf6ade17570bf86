"""Delivery of events to the plugins that observe them."""

from __future__ import annotations

from det_core import events
from det_core.plugins._registry import plugin_registry


def emit_event(event: events.Event) -> None:
    """Call the event's hook in every plugin that observes it."""
    for _ in plugin_registry().call(f"det_{event.name}", event=event):
        pass
