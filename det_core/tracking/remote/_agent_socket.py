"""Calls of the tracking store over the Unix socket on which an agent talks to its workers.

The socket has connections of two kinds. On one that sends nothing, the agent requests preemption
(`det_core.core.agent_channel`). On one whose first line is `_PURPOSE`, the agent repeats that line and then answers
calls one after the other. It may have requested preemption before it has read the line, so the worker skips all lines
up to this one. A line that starts with `_REFUSED` says why there are no calls.

A call is the lengths of the method's name and of the body, followed by both. An answer is its length and its bytes.
A worker has as many connections as it makes calls at the same time.

A call is executed at most once. The worker sends it again only if it could not send all of it, because the agent
ignores an incomplete call. If the answer is lost, the worker cannot know whether the call took effect, and raises.
"""

from __future__ import annotations

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

StoreCall: TypeAlias = Callable[[str, bytes], bytes]
"""Function that takes the method and the body of a call, has the call executed, and returns the answer."""

_PURPOSE = b"tracking store\n"
"""First line of a connection for calls."""
_REFUSED = b"tracking store refused: "
_NO_CALLS = (
    "the agent of this node forwards no calls of the tracking store, because its workers open the store themselves; "
    "use the URL in det.get_cluster_info().master_url"
)
_LONGEST_LINE = 1 << 12
_CALL = struct.Struct("!BI")
_ANSWER = struct.Struct("!I")
_CONNECT_SECONDS = 30.0
"""Seconds to wait for the agent's first line, and for the rest of a call that has begun to arrive."""
_MARGIN = 30.0
"""Seconds for the way to the runner and back, beyond the runner's own time limit on an unavailable database."""


def open_agent_store(path: str, *, url: str, wait: float) -> TrackingStore:
    """Open the tracking store of the runner through the agent of this node.

    Args:
        path: path of the agent's socket.
        url: URL with which other processes of this node open the store.
        wait: seconds for which the runner waits for a database that is locked or unavailable. A call that takes 30 s
            longer raises TrackingError.

    Raises:
        TrackingError: the agent is gone, or forwards no calls.
    """
    from det_core.tracking.remote._remote_store import open_remote_store

    channel = _AgentConnections(path, wait + _MARGIN)
    return open_remote_store(channel.call, url=url, close=channel.close)


class _AgentConnections:
    """Connections to an agent. Threads use different ones, and so do forked processes.

    Args:
        path: path of the agent's socket.
        limit: maximum number of seconds of a call.
    """

    def __init__(self, path: str, limit: float) -> None:
        self._path = path
        self._limit = limit
        self._idle = [self._connect(time.monotonic() + _CONNECT_SECONDS)]
        _channels.add(self)

    def call(self, method: str, body: bytes) -> bytes:
        """Have a call executed, and return the answer. Raises TrackingError if there is none."""
        deadline = time.monotonic() + self._limit
        name = method.encode()
        connection = self._send(_CALL.pack(len(name), len(body)) + name + body, deadline)
        try:
            (length,) = _ANSWER.unpack(_receive(connection, _ANSWER.size, deadline))
            answer = _receive(connection, length, deadline)
        except TimeoutError:
            connection.close()
            raise TrackingError(
                f"the tracking store did not answer {method} within {self._limit:g} s, so the call may have taken "
                f"effect or not; look for an overloaded database or network between this host and the runner"
            ) from None
        except OSError as error:
            connection.close()
            raise TrackingError(
                f"{self._lost(error)} before it answered {method}, so the call may have taken effect or not"
            ) from error
        except BaseException:  # such as KeyboardInterrupt; the answer would be that of the next call
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close the connections that no call uses. Later calls open new ones."""
        while self._idle:
            with suppress(IndexError):  # another thread took it
                self._idle.pop().close()

    def _send(self, call: bytes, deadline: float) -> socket.socket:
        """Send a call and return the connection, on which the answer will arrive."""
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._connect(deadline), True
            try:
                connection.settimeout(_remaining(deadline))
                connection.sendall(call)
            except OSError as error:
                connection.close()
                if is_new:
                    raise TrackingError(f"{self._lost(error)} before it received a call") from error
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _connect(self, deadline: float) -> socket.socket:
        """Return a new connection for calls."""
        deadline = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_remaining(deadline))
            connection.connect(self._path)
            connection.sendall(_PURPOSE)
            line = b""
            while line != _PURPOSE and not line.startswith(_REFUSED):
                line = _receive_line(connection, deadline)
        except OSError as error:
            connection.close()
            raise TrackingError(f"{self._lost(error)}; the runner starts the trial again if it still runs") from error
        except BaseException:
            connection.close()
            raise
        if line != _PURPOSE:
            connection.close()
            raise TrackingError(line.removeprefix(_REFUSED).decode(errors="replace").strip())
        return connection

    def _lost(self, error: OSError) -> str:
        return f"the agent of this node, which forwards calls of the tracking store, is gone ({self._path}: {error})"


_channels: WeakSet[_AgentConnections] = WeakSet()


def _close_inherited() -> None:
    """Close the connections that a forked process has from its parent, which goes on using them."""
    for channel in list(_channels):
        channel.close()


os.register_at_fork(after_in_child=_close_inherited)


def requests_store_calls(connection: socket.socket) -> bool:
    """Return whether a worker's new connection is one for calls. Wait until the worker says so, or disconnects."""
    try:
        return _receive_line(connection, None) == _PURPOSE
    except OSError:
        return False


def serve_store_calls(connection: socket.socket, call: StoreCall | None) -> None:
    """Answer the calls on a connection until the worker closes it.

    Args:
        connection: connection for which `requests_store_calls` is True. It is closed.
        call: function that has a call executed. An error that it raises is the answer. None refuses the connection.
    """
    with closing(connection), suppress(OSError):  # the worker has disconnected
        if call is None:
            connection.sendall(_REFUSED + _NO_CALLS.encode() + b"\n")
        else:
            connection.sendall(_PURPOSE)
            while True:
                _answer_next(connection, call)


def _answer_next(connection: socket.socket, call: StoreCall) -> None:
    """Answer one call. Raises OSError if there is none, or if it is too long to be read."""
    from det_core.tracking.remote._calls import dump_error
    from det_core.tracking.remote._codecs import MAX_BODY_BYTES

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
