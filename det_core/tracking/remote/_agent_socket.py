"""Calls of the tracking store over the Unix socket on which an agent talks to its workers.

The socket has connections of two kinds. On one that sends nothing, the agent requests preemption
(`det_core.core.agent_channel`). On one whose first line is `_PURPOSE`, the agent repeats that line and then answers
calls one after the other. It may have requested preemption before it has read the line, so the worker skips all lines
up to this one.

A call is the lengths of the method's name and of the body, followed by both. An answer is its length and its bytes.
A worker has as many connections as it makes calls at the same time.

Calls that write have an id, so a call whose answer was lost can be repeated and takes effect once: on a new connection
or, once the agent is gone, on the store itself, if the worker has access to it.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TypeAlias
from weakref import WeakSet

from det_core.errors import TrackingError
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._calls import CallIds, add_call_id, dump_error, is_writing
from det_core.tracking.remote._codecs import MAX_BODY_BYTES
from det_core.tracking.remote._remote_store import OwnCalls, open_remote_store

_log = logging.getLogger("det.tracking")

StoreCall: TypeAlias = Callable[[str, bytes], bytes]
"""Function that takes the method and the body of a call, has the call executed, and returns the answer."""

AGENT_SURVIVES = "DET_AGENT_SURVIVES"
"""Environment variable of workers with the number of seconds for which their agent waits for a runner that it lost."""
_PURPOSE = b"tracking store\n"
"""First line of a connection for calls."""
_LONGEST_LINE = 1 << 12
_CALL = struct.Struct("!BI")
_ANSWER = struct.Struct("!I")
_CONNECT_SECONDS = 30.0
"""Seconds to wait for the agent's first line, and for the rest of a call that has begun to arrive."""
_MARGIN = 30.0
"""Seconds for the way to the runner and back, beyond the runner's own time limit on an unavailable database."""


def open_agent_store(path: str, *, url: str, own: OwnCalls | None = None, wait: float = 60.0) -> TrackingStore:
    """Return the tracking store of the runner, which the agent of this node calls. It connects at the first call.

    A call raises TrackingError if the agent is gone or does not answer in time, and this process may not execute calls.

    Args:
        path: path of the agent's socket.
        url: URL with which other processes of this node open the store.
        own: execution of calls in this process, which takes over for good once the agent is gone, or None.
        wait: seconds for which the runner waits for a database that is locked or unavailable. It must answer a call
            within 30 s more, or once the agent has found it again.
    """
    agent = _Agent(path, wait + _MARGIN + float(os.environ.get(AGENT_SURVIVES, 0.0)), own)
    return open_remote_store(agent.call, url=url, close=agent.close)


class _Agent:
    """Agent of this node. Threads use different connections, and so do forked processes.

    Args:
        path: path of its socket.
        limit: maximum number of seconds of a call.
        own: execution of calls in this process once the agent is gone, or None if it has no access to the store.
    """

    def __init__(self, path: str, limit: float, own: OwnCalls | None) -> None:
        self._path = path
        self._limit = limit
        self._own = own
        self._is_gone = False
        self._idle: list[_Lane] = []
        _agents.add(self)

    def call(self, method: str, body: bytes) -> bytes:
        """Have a call executed once, and return the answer. Raises TrackingError if there is none."""
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = _Lane(self._path)
        try:
            return self._deliver(lane, method, add_call_id(lane.ids.next_id(), body) if is_writing(method) else body)
        finally:
            self._idle.append(lane)

    def close(self) -> None:
        """Close what no call uses. Later calls open it again."""
        self.disconnect()
        if self._own:
            self._own.close()

    def disconnect(self) -> None:
        """Close the connections to the agent that no call uses, and end their lanes."""
        while self._idle:
            with suppress(IndexError):  # another thread took it
                self._idle.pop().disconnect()

    def _deliver(self, lane: _Lane, method: str, body: bytes) -> bytes:
        if not (self._own and self._is_gone):
            try:
                return lane.exchange(method, body, time.monotonic() + self._limit)
            except TimeoutError:
                error = TrackingError(
                    f"the tracking store did not answer {method} within {self._limit:g} s, so the call may have taken "
                    "effect or not; look for an overloaded database or network between this host and the runner"
                )
            except OSError as reason:
                error = TrackingError(
                    f"the agent of this node, which forwards calls of the tracking store, is gone ({self._path}: "
                    f"{reason}), so {method} may have taken effect or not; the runner starts the trial again if it "
                    "still runs"
                )
            if self._own is None:
                raise error
            self._is_gone = True
            _log.warning("%s. From now on, this process writes to the tracking store itself", error)
        assert self._own
        return self._own.call(method, body)


class _Lane:
    """Connection for one call at a time, and the ids of its calls.

    Args:
        path: path of the agent's socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: socket.socket | None = None
        self.ids = CallIds()

    def exchange(self, method: str, body: bytes, deadline: float) -> bytes:
        """Send a call and return the answer. A connection that has broken since the last call is replaced.

        Raises:
            TimeoutError: there was no answer before the deadline.
            OSError: the agent is gone.
        """
        was_connected = self._connection is not None
        try:
            return self._attempt(method, body, deadline)
        except ConnectionError:
            if not was_connected:
                raise
        return self._attempt(method, body, deadline)

    def disconnect(self) -> None:
        """Close the connection, if there is one. The next exchange opens another one."""
        connection, self._connection = self._connection, None
        if connection:
            connection.close()

    def _attempt(self, method: str, body: bytes, deadline: float) -> bytes:
        name = method.encode()
        try:
            connection = self._connection = self._connection or self._connect(deadline)
            connection.settimeout(_remaining(deadline))
            connection.sendall(_CALL.pack(len(name), len(body)) + name + body)
            (length,) = _ANSWER.unpack(_receive(connection, _ANSWER.size, deadline))
            return _receive(connection, length, deadline)
        except BaseException:  # such as KeyboardInterrupt; the answer would be that of the next call
            self.disconnect()
            raise

    def _connect(self, deadline: float) -> socket.socket:
        """Return a new connection for calls."""
        deadline = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_remaining(deadline))
            connection.connect(self._path)
            connection.sendall(_PURPOSE)
            while _receive_line(connection, deadline) != _PURPOSE:
                pass
        except BaseException:
            connection.close()
            raise
        return connection


_agents: WeakSet[_Agent] = WeakSet()


def _close_inherited() -> None:
    """Close the connections that a forked process has from its parent, which goes on using them."""
    for agent in list(_agents):
        agent.disconnect()


os.register_at_fork(after_in_child=_close_inherited)


def requests_store_calls(connection: socket.socket) -> bool:
    """Return whether a worker's new connection is one for calls. Wait until the worker says so, or disconnects."""
    try:
        return _receive_line(connection, None) == _PURPOSE
    except OSError:
        return False


def serve_store_calls(connection: socket.socket, call: StoreCall) -> None:
    """Answer the calls on a connection until the worker closes it.

    Args:
        connection: connection for which `requests_store_calls` is True. It is closed.
        call: function that has a call executed. An error that it raises is the answer.
    """
    with closing(connection), suppress(OSError):  # the worker has disconnected
        connection.sendall(_PURPOSE)
        while True:
            _answer_next(connection, call)


def _answer_next(connection: socket.socket, call: StoreCall) -> None:
    """Answer one call. Raises OSError if there is none, or if it is too long to be read."""
    name_length, length = _CALL.unpack(_receive(connection, _CALL.size, None))
    deadline = time.monotonic() + _CONNECT_SECONDS
    method = _receive(connection, name_length, deadline).decode(errors="replace")
    if length > MAX_BODY_BYTES:
        error = f"the call of {method} has {length >> 20} MiB; expected at most {MAX_BODY_BYTES >> 20} MiB"
        _send_answer(connection, dump_error(TrackingError(error)))
        raise ConnectionAbortedError(error)
    body = _receive(connection, length, deadline)
    try:
        answer = call(method, body)
    except Exception as error:  # noqa: BLE001  (sent to the worker)
        answer = dump_error(error)
    _send_answer(connection, answer)


def _send_answer(connection: socket.socket, answer: bytes) -> None:
    connection.settimeout(_MARGIN)
    connection.sendall(_ANSWER.pack(len(answer)) + answer)


def _receive(connection: socket.socket, length: int, deadline: float | None) -> bytes:
    """Return exactly this many bytes.

    Raises:
        OSError: the other side has closed the connection, or the deadline is over.
    """
    data = bytearray(length)
    view = memoryview(data)
    while view:
        connection.settimeout(None if deadline is None else _remaining(deadline))
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("the connection was closed")
        view = view[count:]
    return bytes(data)


def _receive_line(connection: socket.socket, deadline: float | None) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        line += _receive(connection, 1, deadline)
    return line


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("the time limit is over")
    return remaining
