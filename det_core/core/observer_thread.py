"""Delivery of events to one observer, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from det_core import events
from det_core.errors import DetError, PluginError
from det_core.interfaces.observer import Observer, ObserverContext, received_events
from det_core.owner_process import OwnerProcess
from det_core.plugins import no_exit, plugin_registry
from det_core.tracking.secret_files import resolve_secrets

if TYPE_CHECKING:
    from pydantic import BaseModel

_log = logging.getLogger("det.observers")

LINGER = 1.0
"""Seconds that an event may wait for further events before all of them are delivered and flushed."""
IDLE = 10.0
"""Seconds without events after which an observer is flushed again, as an earlier flush may have kept something."""
CAPACITY = 10_000
"""Maximum weight of the events in the queue. An event weighs 1, and a line of the log or a batch's metrics 1 more."""
_CHARACTERS = 1_000
"""Number of characters of a line that weigh 1."""


class ObserverThread:
    """Observer with its queue and its thread, which imports, creates, opens, calls, flushes and closes it.

    Args:
        name: name of the observer.
        block: its recorded block of the config, with references to secrets.
        context: the process that it observes.
    """

    def __init__(self, name: str, block: Mapping[str, Any], context: ObserverContext) -> None:
        self._name = name
        self._block = block
        self._context = context
        self._label = f"observer {name!r}"
        self._observer: Observer | None = None
        self._has_received = False
        self._owner = OwnerProcess()
        self._queue: deque[tuple[events.Event, int]] = deque()
        self._weight = 0
        self._received: frozenset[str] | None = None
        self._closing = False
        self._failed_to_open = False
        self._current = ""
        self._failures = 0
        self._last_failure = ""
        self._dropped = 0
        # The lock is reentrant, because a signal handler of the user may emit an event while its thread emits another.
        self._changed = threading.Condition(threading.RLock())
        self._thread = threading.Thread(target=self._run, name=f"det-observer-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wants(self, kind: type[events.Event]) -> bool:
        """Return whether the observer receives events of this kind, as far as it is known already.

        A forked child has no thread, and does not deliver anything.
        """
        return self._owner.is_here and (self._received is None or kind.name in self._received)

    def submit(self, event: events.Event) -> None:
        """Add an event to the queue, or drop and count it if the queue is full. Never wait."""
        weight = _weigh(event)
        with self._changed:
            is_full = self._weight and self._weight + weight > CAPACITY
            if self._failed_to_open or (is_full and not isinstance(event, events.STARTS_AND_ENDS)):
                self._dropped += 1
                warn = self._dropped == 1 and not self._failed_to_open
            else:
                warn = False
                self._queue.append((event, weight))
                self._weight += weight
                self._changed.notify_all()
        if warn:
            _log.warning(
                "%s is too slow: its queue is full, and events are dropped until it has caught up (now in %s)",
                self._label,
                self._current,
            )

    def end(self) -> None:
        """Ask the thread to deliver what is waiting, and then to flush and close the observer."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def join(self, timeout: float) -> None:
        """Wait for the end, and log how many calls failed and how many events were lost.

        Args:
            timeout: seconds after which the observer is abandoned.
        """
        if not self._owner.is_here:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            _log.warning(
                "%s did not end in time and is abandoned in %s; %d events were not delivered",
                self._label,
                self._current,
                len(self._queue),
            )
        if self._failures > 1:
            _log.warning("%s: %d calls failed, most recently %s", self._label, self._failures, self._last_failure)
        if self._dropped:
            _log.warning("%s: %d events were dropped from det's queue", self._label, self._dropped)

    @property
    def end_timeout(self) -> float:
        """Seconds that the observer asks for at the end of the process."""
        return self._observer.end_timeout if self._observer else 0.0

    def _run(self) -> None:
        observer = self._observer = self._open()
        if observer is None:
            with self._changed:
                self._failed_to_open = True
                self._dropped += len(self._queue)
                self._queue.clear()
            return
        is_over = False
        while not is_over:
            is_over = self._wait()
            for _ in range(len(self._queue)):
                with self._changed:
                    event, weight = self._queue.popleft()
                    self._weight -= weight
                if self.wants(type(event)):
                    self._has_received = True
                    self._call(event.name, observer.notify, event)
            self._call("flush", observer.flush)
        self._call("close", observer.close)

    def _open(self) -> Observer | None:
        self._current = "open"
        try:
            plugins = plugin_registry()
            spec = plugins.find("observer", self._name)
            self._label += f" of plugin {plugins.owner(spec)}"
            options = _resolve_options(self._name, self._block)
            with no_exit():
                observer: Observer = plugins.call_target(spec, options)
                observer.open(self._context)
            self._received = frozenset(received_events(type(observer)))
        except Exception as error:  # noqa: BLE001  (plugins may raise anything, and training goes on)
            detail = None if isinstance(error, DetError) else error
            _log.warning(
                "%s cannot be opened and receives nothing: %s", self._label, error or repr(error), exc_info=detail
            )
            return None
        return observer

    def _wait(self) -> bool:
        """Wait until there are events, then briefly for more. Return whether the observer is to be closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing, IDLE if self._has_received else None)
            until = time.monotonic() + LINGER
            while not self._closing and 0 < self._weight < CAPACITY // 2 and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._closing

    def _call(self, method: str, call: Callable[..., object], *arguments: object) -> None:
        self._current = method
        try:
            with no_exit():
                call(*arguments)
        except Exception as error:  # noqa: BLE001  (as above)
            self._failures += 1
            self._last_failure = f"{method}: {type(error).__name__}: {' '.join(str(error).split())}"
            if self._failures == 1:
                reason = f": {error}" if isinstance(error, DetError) else ""
                _log.error(
                    "%s failed in %s%s; further errors are counted", self._label, method, reason, exc_info=not reason
                )


def _resolve_options(name: str, recorded: Mapping[str, Any]) -> BaseModel:
    """Return the options of an observer with its secrets."""
    from pydantic import ValidationError  # only processes with observers need it

    from det_core.config import ObserverConfig, explain_block

    block = resolve_secrets({"observers": {name: recorded}})["observers"][name]
    try:
        return ObserverConfig.from_options(name, block).options
    except ValidationError as error:
        # Pydantic's own message would contain secrets.
        problems = explain_block(error, f"observers.{name}", block)
    raise PluginError(f"it does not accept its recorded options: {problems}")


def _weigh(event: events.Event) -> int:
    if isinstance(event, events.LogsRecorded):
        return 1 + sum(1 + len(line.log) // _CHARACTERS for line in event.lines)
    if isinstance(event, events.MetricsReported):
        return 1 + len(event.batch_metrics or ())
    return 1
