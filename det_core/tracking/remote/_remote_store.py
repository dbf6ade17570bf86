"""Tracking store whose calls are executed elsewhere, and the execution of these calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from det_core.errors import TrackingError
from det_core.interfaces.server_store import Change, ServerStore
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._calls import METHODS, StoreMethod, dump_error, find_method, split_call_id

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


def answer_call(
    store: TrackingStore, method: str, body: bytes, *, caller: Caller | None = None, call_id: str | None = None
) -> bytes:
    """Execute a call of a remote store, and return the answer. Errors are part of the answer.

    Args:
        store: the store that executes the call. Its own rules on outages apply here, and not where the call comes from.
        method: name of the method.
        body: arguments of the call, after its id if it has one.
        caller: the caller with its rights. None permits every call.
        call_id: ``LANE-NUMBER``, which makes a call that the caller repeats take effect once. Calls of one lane follow
            each other, and their numbers ascend. None stands for the id in the body.
    """
    try:
        found = find_method(method)
        if caller is not None:  # before the arguments are decoded
            caller.check_method(found)
            caller.check_run(store)
        given_id, plain = split_call_id(body)
        call_id = given_id if call_id is None else call_id
        arguments = found.load_arguments(plain)
        execute = partial(_execute, store, found, arguments, caller)
        if isinstance(store, ServerStore):
            return store.execute(execute, call_id=call_id)
        if isinstance(store, _Channel) and given_id:  # the other side of the channel knows the id
            if caller is not None:
                caller.check_records(store, found, arguments)
            return store.pass_on(method, body)
        if call_id is not None:
            raise TrackingError(f"the tracking store {type(store).__name__} cannot execute calls with an id")
        return execute(Change())
    except Exception as error:  # noqa: BLE001  (sent to the caller)
        return dump_error(error)


def _execute(
    store: TrackingStore, method: StoreMethod, arguments: Mapping[str, Any], caller: Caller | None, change: Change
) -> bytes:
    if caller is not None:
        change.action = caller.check_records(store, method, arguments)
        if method.takes("owner") and not caller.owns_all:
            arguments = {**arguments, "owner": caller.user}
    member = getattr(store, method.name)
    result = member if method.is_property else member(**arguments)
    if change.action and not change.action.target:  # a new record
        change.action.target = f"{method.name.removeprefix('create_')} {result.id}"
    return method.dump_result(result)


class _Channel:
    """State of a `_RemoteStore`."""

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
    def call(self: _Channel, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, args, kwargs)

    return call


# Made from the interface, so that a method added there needs no line here.
_RemoteStore = type("_RemoteStore", (_Channel, TrackingStore), {name: _remote_member(name) for name in METHODS})
