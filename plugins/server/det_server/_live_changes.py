"""Live updates of open pages, as server-sent events.

One poller per process asks the tracking store for changes while pages are open, and reads the rows of each person's
pages. Each page receives the present rows of its experiments and trials when it connects, and afterwards only the
values that changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

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
_READERS = 4
"""Maximum number of people for whose pages rows are read at the same time."""
_CLOSING_SECONDS = 10.0
"""Maximum time for which the end of the server waits for reads."""
_QUEUE = 100
"""Maximum number of events that wait for a slow page. A page that falls behind is asked to reload its values."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


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
    is_behind: bool = False
    """Whether the page has not received yet what it missed before it connected. Its cursor stays until then."""
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

    What is slow for one person, or fails, delays the events of nobody else.

    Args:
        store: the tracking store.
    """

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._rows = LiveRows(store)
        self._recent_rows: dict[Topics, tuple[float, Mapping[str, RowValues]]] = {}
        """Rows of pages, with the times at which their reads began. Many people look at the same page."""
        self._subscriptions: set[Subscription] = set()
        self._poller: asyncio.Task[None] | None = None
        self._jobs: dict[str, asyncio.Task[None]] = {}
        """Jobs of the poller that have not ended, by name."""
        self._cursor = ""
        self._has_cursor = asyncio.Event()
        self._reading = WeakValueDictionary[str, asyncio.Lock]()
        """Locks by person, or one whose pages connect again and again would keep others from reading."""
        self._reading_threads = anyio.CapacityLimiter(_READERS)
        self._changes_thread, self._credentials_thread = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

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
        subscription = Subscription(viewer, topics, is_behind=bool(cursor))
        self._subscriptions.add(subscription)
        try:
            yield b"retry: 2000\n\n"
            self._start()
            self._begin(f"rows of page {id(subscription)}", partial(self._send_present, subscription, cursor))
            while (event := await _next_event(subscription.queue)) is not None:
                yield event
        finally:
            self._subscriptions.discard(subscription)

    async def close(self) -> None:
        """End the poller, and wait for its jobs, whose threads would go on if they were cancelled."""
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)
        self._subscriptions.clear()
        self._has_cursor.set()
        if self._jobs:
            await asyncio.wait(self._jobs.values(), timeout=_CLOSING_SECONDS)

    def _start(self) -> None:
        if not self.is_polling:
            self._cursor = ""
            self._has_cursor.clear()
            self._poller = asyncio.create_task(self._poll_while_open())

    async def _send_present(self, subscription: Subscription, cursor: str) -> None:
        """Queue the present rows, and what a page has missed since the cursor that it names."""
        try:
            await self._send_rows([subscription], age=0.0)
            if cursor:
                await self._has_cursor.wait()  # what happens after this read is left to the poller
                missed = await self._read(subscription, self._store.changes, cursor)
                subscription.is_behind = False
                if missed:
                    _publish(missed, [subscription])
        except (DetError, ValueError) as error:  # an unknown cursor, or a store that is unavailable
            _log.warning("a page asked to reload, because its events could not be read: %s", error)
            subscription.is_behind = False
            subscription.put(Event("reload", {}))

    async def _poll_while_open(self) -> None:
        while self._subscriptions:
            for topics, (began, _) in list(self._recent_rows.items()):
                if time.monotonic() - began > POLL_SECONDS:
                    self._recent_rows.pop(topics)
            pages = defaultdict[str, list[Subscription]](list)
            for subscription in self._subscriptions:
                pages[subscription.viewer.name].append(subscription)
            self._begin("changes", self._publish_changes)
            self._begin("credentials", self._end_refused_streams)
            for name, subscriptions in pages.items():
                self._begin(f"rows of {name}", partial(self._send_rows, subscriptions, age=POLL_SECONDS / 2))
            await asyncio.sleep(POLL_SECONDS)
        self._has_cursor.set()  # for jobs of pages that were closed
        self._poller = None

    def _begin(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        """Begin a job, unless its last one has not ended."""
        if name not in self._jobs:
            self._jobs[name] = task = asyncio.create_task(self._run(name, job))
            task.add_done_callback(lambda _: self._jobs.pop(name))

    async def _run(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except DetError as error:  # the store is unavailable; pages stay as they are until it is back
            _log.warning("the %s for open pages could not be read: %s", name, error)

    async def _publish_changes(self) -> None:
        read = partial(self._store.changes, self._cursor)
        changes = await anyio.to_thread.run_sync(read, limiter=self._changes_thread)
        self._cursor = changes.cursor
        self._has_cursor.set()
        _publish(changes, self._subscriptions)

    async def _send_rows(self, subscriptions: Sequence[Subscription], *, age: float) -> None:
        """Queue the rows of pages of one person.

        Args:
            subscriptions: the pages.
            age: maximum number of seconds since the rows were read for another page.
        """
        for subscription in subscriptions:
            rows = await self._read(subscription, self._read_rows, subscription.topics, age)
            subscription.put_rows(rows or {})

    def _read_rows(self, topics: Topics, age: float) -> Mapping[str, RowValues]:
        now = time.monotonic()
        began, rows = self._recent_rows.get(topics, (-math.inf, {}))
        if now - began >= age:
            rows = self._rows.read(topics)
            self._recent_rows[topics] = now, rows
        return rows

    async def _read(self, page: Subscription, function: Callable[..., _T], *args: object) -> _T | None:
        """Return the result of a function that reads for a page, or None if the page was closed before it could.

        One runs for a person at a time.
        """
        async with self._reading.setdefault(page.viewer.name, asyncio.Lock()):
            if page not in self._subscriptions:
                return None
            return await anyio.to_thread.run_sync(function, *args, limiter=self._reading_threads)

    async def _end_refused_streams(self) -> None:
        """End the streams of viewers whose credentials have become invalid."""
        subscriptions = list(self._subscriptions)
        admitted = await anyio.to_thread.run_sync(_check_viewers, subscriptions, limiter=self._credentials_thread)
        for subscription, is_admitted in zip(subscriptions, admitted, strict=True):
            if not is_admitted:
                subscription.end()
                self._subscriptions.discard(subscription)


def _check_viewers(subscriptions: Iterable[Subscription]) -> list[bool]:
    return [one.viewer.is_admitted() for one in subscriptions]


def _publish(changes: Changes, subscriptions: Iterable[Subscription]) -> None:
    for name in ("metrics", "system_metrics", "logs", "checkpoints"):
        changed = frozenset(getattr(changes, name))
        for subscription in subscriptions:
            if concerned := sorted(subscription.topics.trials & changed):
                subscription.put(Event(name, concerned, "" if subscription.is_behind else changes.cursor))


async def _next_event(queue: asyncio.Queue[Event | None]) -> bytes | None:
    try:
        event = await asyncio.wait_for(queue.get(), HEARTBEAT_SECONDS)
    except asyncio.TimeoutError:
        return b": alive\n\n"
    return None if event is None else event.encode()
