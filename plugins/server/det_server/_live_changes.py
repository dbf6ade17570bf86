"""Live updates of open pages, as server-sent events.

One poller per process asks the tracking store for changes while pages are open. Each page receives the present rows of
its experiments and trials when it connects, and afterwards only the values that changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from det_core.errors import DetError
from det_server._live_rows import LiveRows, RowValues, Topics

if TYPE_CHECKING:
    from det_core.interfaces.records import Changes
    from det_core.interfaces.tracking import TrackingStore

POLL_SECONDS = 1.0
"""Number of seconds between two polls of the tracking store."""
HEARTBEAT_SECONDS = 15.0
"""Number of seconds without an event after which a page receives a comment, so that dead connections are noticed."""
MAX_STREAMS = 200
"""Maximum number of pages that receive events at a time."""
MAX_STREAMS_PER_PERSON = 30
"""Maximum number of pages of one person that receive events at a time."""
_QUEUE = 100
"""Maximum number of events that wait for a slow page. A page that falls behind is asked to reload its values."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Viewer:
    """Person whose page receives events.

    Args:
        name: name of the person.
        is_admitted: function that returns whether the credentials of the page are still valid.
    """

    name: str
    is_admitted: Callable[[], bool]


@dataclass(frozen=True)
class Event:
    """One event for a page.

    Args:
        name: name of the event.
        data: JSON-compatible contents.
        cursor: position in the changes of the store after the event, or "" if it does not move.
    """

    name: str
    data: Any
    cursor: str = ""

    def encode(self) -> bytes:
        """Return the event in the form of ``text/event-stream``."""
        position = f"id: {self.cursor}\n" if self.cursor else ""
        return f"{position}event: {self.name}\ndata: {json.dumps(self.data, allow_nan=False)}\n\n".encode()


@dataclass(eq=False)
class Subscription:
    """Events for one page.

    Args:
        viewer: person who looks at the page.
        topics: subjects of the page.
    """

    viewer: Viewer
    topics: Topics
    queue: asyncio.Queue[Event | None] = field(default_factory=lambda: asyncio.Queue(_QUEUE))
    """Events that the page has not received, and None at the end of all events."""
    sent: dict[str, RowValues] = field(default_factory=dict)
    """Values of the rows that were sent last."""

    def put(self, event: Event) -> None:
        """Queue an event. If the page has fallen behind, everything that waits becomes a request to reload."""
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.sent.clear()
            event = Event("reload", {}, event.cursor)
        self.queue.put_nowait(event)

    def end(self) -> None:
        """Discard the events that wait, and end the stream."""
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)

    def put_rows(self, rows: Mapping[str, RowValues]) -> None:
        """Queue the values of rows that differ from those sent before."""
        changed: dict[str, RowValues] = {}
        for key, values in rows.items():
            before = self.sent.get(key, {})
            differing = {name: value for name, value in values.items() if before.get(name, ...) != value}
            if differing:
                changed[key] = differing
                self.sent[key] = dict(values)
        if changed:
            self.put(Event("rows", changed))


class LiveChanges:
    """Source of the events of all open pages. It does nothing while no page is open.

    Args:
        store: the tracking store.
    """

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._rows = LiveRows(store)
        self._subscriptions: set[Subscription] = set()
        self._poller: asyncio.Task[None] | None = None
        self._cursor = ""
        self._has_cursor = asyncio.Event()
        self._connecting = WeakValueDictionary[str, asyncio.Lock]()

    @property
    def open_pages(self) -> int:
        """Return the number of pages that receive events."""
        return len(self._subscriptions)

    @property
    def is_polling(self) -> bool:
        """Return whether the tracking store is asked for changes."""
        return self._poller is not None and not self._poller.done()

    def refusal(self, viewer: Viewer) -> str:
        """Return why a further page of a person receives no events, or "" if it does."""
        own = sum(one.viewer.name == viewer.name for one in self._subscriptions)
        if own >= MAX_STREAMS_PER_PERSON:
            return f"{viewer.name} has {own} open pages"
        return f"{self.open_pages} pages are open" if self.open_pages >= MAX_STREAMS else ""

    async def events(self, viewer: Viewer, topics: Topics, cursor: str = "") -> AsyncIterator[bytes]:
        """Yield the encoded events of a page until the consumer closes the iterator.

        They end at once if there are too many pages, and as soon as the viewer is not admitted any more.

        Args:
            viewer: person who looks at the page.
            topics: subjects of the page.
            cursor: position of the last event that the page has received, if it connects again.
        """
        if self.refusal(viewer):
            return
        subscription = Subscription(viewer, topics)
        self._subscriptions.add(subscription)
        try:
            yield b"retry: 2000\n\n"
            self._start()
            await self._send_present(subscription, cursor)
            while (event := await _next_event(subscription.queue)) is not None:
                yield event
        finally:
            self._subscriptions.discard(subscription)

    async def close(self) -> None:
        """End the poller."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)

    def _start(self) -> None:
        if self._poller is None or self._poller.done():
            self._cursor = ""
            self._has_cursor.clear()
            self._poller = asyncio.create_task(self._poll_while_open())

    async def _send_present(self, subscription: Subscription, cursor: str) -> None:
        """Queue the present rows, and what a page has missed since the cursor that it names."""
        try:
            # One page of a person after the other, or one that connects again and again would keep others from reading.
            async with self._connecting.setdefault(subscription.viewer.name, asyncio.Lock()):
                rows = await asyncio.to_thread(self._rows.read, [subscription.topics])
            subscription.put_rows(rows)
            if cursor:
                await self._has_cursor.wait()  # what happens after this read is left to the poller
                missed = await asyncio.to_thread(self._store.changes, cursor)
                self._publish(subscription, missed)
        except (DetError, ValueError) as error:  # an unknown cursor, or a store that is unavailable
            _log.warning("a page asked to reload, because its events could not be read: %s", error)
            subscription.put(Event("reload", {}))

    async def _poll_while_open(self) -> None:
        while self._subscriptions:
            try:
                await self._poll()
            except DetError as error:  # the store is unavailable; pages stay as they are until it is back
                _log.warning("the changes for open pages could not be read: %s", error)
            await asyncio.sleep(POLL_SECONDS)
        self._poller = None

    async def _poll(self) -> None:
        await self._end_refused_streams()
        changes = await asyncio.to_thread(self._store.changes, self._cursor)
        self._cursor = changes.cursor
        self._has_cursor.set()
        subscriptions = list(self._subscriptions)
        topics = [one.topics for one in subscriptions]
        rows = await asyncio.to_thread(self._rows.read, topics)
        for subscription in subscriptions:
            keys = self._rows.keys(subscription.topics)
            subscription.put_rows({key: rows[key] for key in keys if key in rows})
            self._publish(subscription, changes)

    async def _end_refused_streams(self) -> None:
        """End the streams of viewers whose credentials have become invalid."""
        subscriptions = list(self._subscriptions)
        admitted = await asyncio.to_thread(lambda: [one.viewer.is_admitted() for one in subscriptions])
        for subscription, is_admitted in zip(subscriptions, admitted, strict=True):
            if not is_admitted:
                subscription.end()
                self._subscriptions.discard(subscription)

    def _publish(self, subscription: Subscription, changes: Changes) -> None:
        for name in ("metrics", "system_metrics", "logs", "checkpoints"):
            concerned = sorted(subscription.topics.trials.intersection(getattr(changes, name)))
            if concerned:
                subscription.put(Event(name, concerned, changes.cursor))


async def _next_event(queue: asyncio.Queue[Event | None]) -> bytes | None:
    try:
        event = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
    except asyncio.TimeoutError:
        return b": alive\n\n"
    return None if event is None else event.encode()
