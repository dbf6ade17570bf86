"""Execution of the calls of remote stores."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from det_core.errors import TrackingError
from det_core.interfaces.server_store import Change, ServerStore
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._calls import RemoteChannel, StoreMethod, dump_error, find_method, split_call_id

if TYPE_CHECKING:
    from det_core.tracking.remote._access import Caller

_ADMITTED_SECONDS = 1.0
"""Time after which the credentials of a call are checked again before a write that the audit log does not record."""


def answer_call(
    store: TrackingStore,
    method: str,
    body: bytes,
    *,
    caller: Caller | None = None,
    call_id: str | None = None,
    is_admitted: Callable[[], bool] = lambda: True,
) -> bytes:
    """Execute a call of a remote store, and return the answer. Errors are part of the answer.

    Args:
        store: the store that executes the call. Its own rules on outages apply here, and not where the call comes from.
        method: name of the method.
        body: arguments of the call, after its id if it has one.
        caller: the caller with its rights. None permits every call.
        call_id: ``LANE-NUMBER``, which makes a call that the caller repeats take effect once. Calls of one lane follow
            each other, and their numbers ascend. None stands for the id in the body. The same id of another caller is
            that of another call.
        is_admitted: function that returns whether the caller's credentials are still valid. It is called in each
            transaction of a change that the audit log records, which may have waited while they ended, and in others
            that have waited for long.
    """
    try:
        found = find_method(method)
        if caller is not None:  # before the arguments are decoded
            caller.check_method(found)
            caller.check_run(store)
        given_id, plain = split_call_id(body)
        call_id = given_id if call_id is None else call_id
        arguments = found.load_arguments(plain)
        execute = partial(_execute, store, found, arguments, caller, is_admitted)
        if isinstance(store, ServerStore):
            return store.execute(execute, call_id=call_id and _own_id(caller, call_id))
        if isinstance(store, RemoteChannel) and given_id:  # the other side of the channel knows the id
            if caller is not None:
                caller.check_records(store, found, arguments)
            return store.pass_on(method, body)
        if call_id is not None:
            raise TrackingError(f"the tracking store {type(store).__name__} cannot execute calls with an id")
        return execute(Change())
    except Exception as error:  # noqa: BLE001  (sent to the caller)
        return dump_error(error)


def _own_id(caller: Caller | None, call_id: str) -> str:
    """Return the id of a call in a lane that no other caller has, whatever id another one sends."""
    lane, _, number = call_id.rpartition("-")
    if caller is None or not lane:
        return call_id
    owner = ("run", str(caller.run)) if caller.run else ("user", caller.user)  # experiments may change their owner
    digest = hashlib.sha256(repr((owner, lane)).encode(errors="replace")).hexdigest()
    return f"{digest}-{number}"


def _execute(
    store: TrackingStore,
    method: StoreMethod,
    arguments: Mapping[str, Any],
    caller: Caller | None,
    is_admitted: Callable[[], bool],
    change: Change,
) -> bytes:
    if caller is not None:
        change.action = caller.check_records(store, method, arguments)
        if change.action:
            change.confirm = partial(_require_rights, store, method, arguments, caller, is_admitted)
        else:
            later = time.monotonic() + _ADMITTED_SECONDS
            change.confirm = partial(_require_admission_later, later, store, caller, is_admitted)
        if method.takes("owner") and not caller.owns_all:
            arguments = {**arguments, "owner": caller.user}
    member = getattr(store, method.name)
    result = member if method.is_property else member(**arguments)
    if change.action and not change.action.target:  # a new record
        change.action.target = f"{method.name.removeprefix('create_')} {result.id}"
    return method.dump_result(result)


def _require_rights(
    store: TrackingStore,
    method: StoreMethod,
    arguments: Mapping[str, Any],
    caller: Caller,
    is_admitted: Callable[[], bool],
) -> None:
    _require_admission(is_admitted)
    caller.check_run(store)
    caller.check_records(store, method, arguments)


def _require_admission(is_admitted: Callable[[], bool]) -> None:
    if not is_admitted():
        raise TrackingError("your session or token has ended; log in again")


def _require_admission_later(
    later: float, store: TrackingStore, caller: Caller, is_admitted: Callable[[], bool]
) -> None:
    """Check the credentials and the run of a frequent call that the audit log does not record, if it has waited."""
    if time.monotonic() > later:
        _require_admission(is_admitted)
        caller.check_run(store)
