"""Tracking store whose calls are executed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._calls import METHODS, find_method


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


class RemoteChannel:
    """Channel of a remote store to the side that executes its calls."""

    def __init__(self, call: Callable[[str, bytes], bytes], url: str, close: Callable[[], None]) -> None:
        self.url = url
        self._send = call
        self._close = close

    def _call(self, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        method = find_method(name)
        return method.load_answer(self._send(name, method.dump_arguments(args, kwargs or {})))

    def pass_on(self, name: str, body: bytes) -> bytes:
        """Send a call with its id as somebody else has encoded it, and return the answer."""
        return self._send(name, body)

    def close(self) -> None:
        self._close()


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
