"""Calls of event hooks."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from det_core import events
from det_core.plugins._registry import no_exit, plugin_registry

_log = logging.getLogger("det.plugins")

_failures: dict[tuple[str, str], Iterator[int]] = {}
"""Counters of failed calls by plugin and hook. The next number of each includes the call that asks for it."""


def has_event_hooks(name: str) -> bool:
    """Return whether a plugin implements the hook of an event.

    Args:
        name: name of the event.
    """
    return plugin_registry().implements(f"det_{name}")


def emit_event(event: events.Event) -> None:
    """Call the event's hook in every plugin that implements it.

    The first error of each hook of a plugin is logged. Further ones are counted for `report_failed_hooks`.

    Args:
        event: the event.
    """
    hook = f"det_{event.name}"
    for plugin, call in plugin_registry().implementations(hook):
        try:
            with no_exit():
                call(event=event)
        except Exception:  # noqa: BLE001  (plugins may raise anything, and must not affect each other)
            if next(_failures.setdefault((plugin, hook), itertools.count(1))) == 1:
                _log.exception("plugin %s failed in %s; further errors are counted", plugin, hook)


def report_failed_hooks() -> None:
    """Log the number of errors of each hook that has raised several, and count from zero again."""
    while _failures:
        (plugin, hook), counter = _failures.popitem()
        if (count := next(counter) - 1) > 1:
            _log.warning("plugin %s failed %d times in %s", plugin, count, hook)
