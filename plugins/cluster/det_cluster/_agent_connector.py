"""Connection between the command of a runner and an agent that outlives it, on one node.

The agent listens on a Unix socket in Linux' abstract namespace. It has no file, so nothing is left when the agent ends.
Both sides check that the other one belongs to the same user.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

_CREDENTIALS = struct.Struct("3i")
_START_SECONDS = 60.0
"""Seconds until an agent that was started must listen."""
_TICK = 0.05
_CHUNK = 1 << 18


def listen_for_runners(key: str, node: int) -> socket.socket:
    """Return the socket on which the agent of a node listens.

    Args:
        key: key of the launch.
        node: index of the node.

    Raises:
        OSError: an agent of this launch is there already.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(_address(key, node))
    server.listen()
    return server


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the process at the other end belongs to the user of this process."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


def connect_to_agent(key: str, node: int, start: Sequence[str]) -> socket.socket | None:
    """Connect to the agent of a node, and start it if there is none. Return None if it is gone.

    Args:
        key: key of the launch.
        node: index of the node.
        start: command that starts the agent, or nothing if it must be there.
    """
    if connection := _try_to_connect(key, node):
        return connection
    if not start:
        return None
    nothing = subprocess.DEVNULL
    agent = subprocess.Popen(start, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/", start_new_session=True)
    deadline = time.monotonic() + _START_SECONDS
    while agent.poll() is None and time.monotonic() < deadline:
        if connection := _try_to_connect(key, node):
            return connection
        time.sleep(_TICK)
    return None


def relay(connection: socket.socket) -> None:
    """Copy stdin to a connection, and what comes back to stdout, until one of them ends."""
    reader = threading.Thread(target=_copy, args=(sys.stdin.fileno(), connection.sendall, connection), daemon=True)
    reader.start()
    _copy(connection.fileno(), _write_all, connection)


def _copy(source: int, write: Callable[[bytes], object], connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := os.read(source, _CHUNK):
            write(chunk)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _write_all(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _try_to_connect(key: str, node: int) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(_address(key, node))
    except ConnectionRefusedError:
        connection.close()
        return None
    if not is_same_user(connection):
        connection.close()
        raise PermissionError(f"the agent of {key} belongs to another user")
    return connection


def _address(key: str, node: int) -> str:
    return f"\0det-agent-{os.getuid()}-{key}-{node}"
