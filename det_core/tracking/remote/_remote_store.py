"""Tracking store whose calls are executed elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._calls import METHODS, RemoteChannel

if TYPE_CHECKING:
    from det_core.tracking.remote._access import Caller


def open_remote_store(
    call: Callable[[str, bytes], bytes], *, url: str, close: Callable[[], None] = lambda: None
) -> TrackingStore:
    """Return a tracking store whose calls go through a channel.

    Errors of the store come back as the same class with the same message. If that class is none of those that
    `TrackingStore` documents, it becomes a TrackingError that names the class. An iterator is sent in one piece.

    Args:
        call: takes the name of a method and the body of a call, and returns the answer of `answer_call`. It must not
            have a call without an id executed twice, because some calls cannot be repeated. If it cannot deliver a
            call, or loses the answer, it raises TrackingError. It is called from any thread.
        url: URL with which other processes open the store, if they can.
        close: function that releases the channel.
    """
    store: TrackingStore = _RemoteStore(call, url, close)
    return store


class OwnCalls:
    """Channel for `open_remote_store` that opens the store, and imports what this needs, at the first call.

    Args:
        open_store: function that opens the store, and returns it with the caller whose rights the calls have. None in
            place of the caller permits every call.
    """

    def __init__(self, open_store: Callable[[], tuple[TrackingStore, Caller | None]]) -> None:
        self._open_store = open_store
        self._opening = threading.Lock()
        self._opened: tuple[TrackingStore, Caller | None] | None = None

    def call(self, method: str, body: bytes) -> bytes:
        """Execute a call, and return the answer. Raises TrackingError if the store cannot be opened."""
        from det_core.tracking.remote._answers import answer_call

        with self._opening:
            store, caller = self._opened = self._opened or self._open_store()
        return answer_call(store, method, body, caller=caller)

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._opened:
            self._opened[0].close()


def _remote_member(name: str) -> Any:
    member = getattr(TrackingStore, name)
    if isinstance(member, property):
        return property(lambda self: self._call(name), doc=member.__doc__)

    @wraps(member, updated=())  # without the mark of an abstract method
    def call(self: RemoteChannel, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, args, kwargs)

    return call


# Made from the interface, so that a method added there needs no line here.
_RemoteStore = type("_RemoteStore", (RemoteChannel, TrackingStore), {name: _remote_member(name) for name in METHODS})
