"""Greeting by which two workers verify that they belong to the same job, before the first frame."""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from dataclasses import astuple
from typing import Any, Final, Protocol

from det_core.comm._connection_plan import PeerRole
from det_core.comm._link import Link, close_in_children
from det_core.comm._ranks import Peer
from det_core.errors import CommError

_log = logging.getLogger("det.core")
_GREETING_SECONDS: Final = 10.0
"""Time limit of one greeting in seconds, counted from the connection."""
_MOST_AT_ONCE: Final = 128
"""Maximum number of greetings at a time. One more ends the oldest. A worker's greeting takes milliseconds."""
_MOST_LINES: Final = 10
"""Number of foreign connections that are logged one by one. After these, only the 16th, 32nd, 64th, ... is logged."""
_SIZE: Final = struct.Struct("!H")
"""Length of a greeting in bytes, which is sent before it."""
_RETRY: Final = 0.02
"""Seconds between two attempts."""


class KeyMismatch(OSError):
    """Error of a peer that holds another key, and therefore trusts another certificate."""


class Transport(Protocol):
    """Factory of connections, which are made to authenticated peers only."""

    def fresh(self) -> Any:
        """Return a new address to listen at, which nobody else knows."""

    def listen(self, address: Any) -> socket.socket:
        """Return a socket that listens at the address."""

    def address_of(self, sock: socket.socket) -> Any:
        """Return the address at which peers reach a listening socket."""

    def accept(self, sock: socket.socket) -> socket.socket:
        """Authenticate the peer of an accepted connection, and return the socket to use."""

    def connect(self, address: Any, timeout: float) -> socket.socket:
        """Connect within ``timeout`` seconds, authenticate the peer, and return the socket."""

    def forget(self, address: Any) -> None:
        """Clean up the address of a listener that has been closed."""


class Listener:
    """Listener that admits the expected peers in the background.

    Args:
        transport: the transport of the connections.
        address: the address to listen at.
        me: this worker.
        job: size and cross_size of the job, which must be the same on both sides.
        expected: roles of the peers to admit.

    Raises:
        CommError: the address is in use.
    """

    def __init__(
        self, transport: Transport, address: Any, me: Peer, job: list[int], expected: Collection[PeerRole]
    ) -> None:
        self.links: dict[PeerRole, Link] = {}
        """Connections to the admitted peers, by role."""
        self.other_key: str | None = None
        """Address of a peer that connected with another key."""
        self._transport, self._address, self._me, self._job = transport, address, me, job
        self._expected = frozenset(expected)
        self._changed = threading.Condition()
        self._under_way: dict[int, socket.socket] = {}
        self._strangers = 0
        self._is_open = True
        self._socket = transport.listen(address)
        close_in_children(self._socket)
        threading.Thread(target=self._accept, name="det-listener", daemon=True).start()

    @property
    def address(self) -> Any:
        """Address at which peers connect."""
        return self._transport.address_of(self._socket)

    @property
    def missing(self) -> list[PeerRole]:
        """Roles of the expected peers that have not been admitted yet, in order."""
        return sorted(self._expected - self.links.keys())

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` seconds for the expected peers, and return whether all of them are connected."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.missing, seconds)

    def close(self) -> None:
        """Stop listening. Connections that have been admitted stay open."""
        with self._changed:
            if not self._is_open:
                return
            self._is_open = False
        self._transport.forget(self._address)
        with suppress(OSError):  # also wakes accept
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        came = 0
        while self._socket.fileno() >= 0:
            try:
                sock, address = self._socket.accept()
            except OSError:  # the listener was closed, or the peer is already gone
                time.sleep(_RETRY)
                continue
            came += 1
            try:
                self._begin(came, sock)
                greeting = (came, sock, address)
                threading.Thread(target=self._greet, args=greeting, name="det-greeting", daemon=True).start()
            except (OSError, RuntimeError) as error:  # temporarily too many open files or threads
                self._forget(came)
                self._drop(sock, address, error)

    def _begin(self, number: int, sock: socket.socket) -> None:
        """Register a greeting, and end the oldest one if there are too many."""
        handle = sock.dup()  # because TLS detaches ``sock`` itself
        with self._changed:
            self._under_way[number] = handle
            if len(self._under_way) <= _MOST_AT_ONCE:
                return
            oldest = self._under_way.pop(next(iter(self._under_way)))
        with oldest, suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, number: int) -> None:
        with self._changed:
            handle = self._under_way.pop(number, None)
        if handle:
            handle.close()

    def _greet(self, number: int, sock: socket.socket, address: Any) -> None:
        end = time.monotonic() + _GREETING_SECONDS
        try:
            sock.settimeout(_GREETING_SECONDS)
            sock = self._transport.accept(sock)
            role, peer, job = _read_greeting(sock, end)
            self._forget(number)
            self._admit(sock, PeerRole(*role), Peer(*peer), job)
        except (OSError, ValueError, TypeError) as error:
            self._forget(number)
            self._drop(sock, address, error)

    def _drop(self, sock: socket.socket, address: Any, error: Exception) -> None:
        sock.close()
        who = address or "this host"
        with self._changed:
            self._strangers += 1
            count = self._strangers
            if isinstance(error, KeyMismatch):
                self.other_key = str(address[0])
                return  # reported if the job fails for lack of this peer
        if count <= _MOST_LINES or count.bit_count() == 1:
            _log.warning("dropped a connection from %s that is not of this job (number %d): %s", who, count, error)

    def _admit(self, sock: socket.socket, role: PeerRole, peer: Peer, job: list[int]) -> None:
        with self._changed:
            if refusal := self._refusal(role, peer, job):
                _write_greeting(sock, [refusal])
                raise ValueError(refusal)
            _write_greeting(sock, ["", astuple(self._me)])
            self.links[role] = Link(sock, peer)
            self._changed.notify_all()

    def _refusal(self, role: PeerRole, peer: Peer, job: list[int]) -> str:
        if job != self._job:
            return f"{peer} says that size and cross_size are {job}, {self._me} says {self._job}"
        if role in self.links:
            return f"{peer} claims to be {role}, as does {self.links[role].peer}; pass another port_offset to each job"
        if role in self._expected and self._is_open:
            return ""
        return f"{peer} claims to be {role}, which {self._me} does not expect"


def connect_to_listener(
    transport: Transport, address: Any, me: Peer, job: list[int], role: PeerRole, *, seconds: float
) -> Link:
    """Connect to a `Listener`.

    Args:
        transport: the transport of the connection.
        address: the address of the listener.
        me: this worker.
        job: size and cross_size of the job.
        role: role of this worker for the listener.
        seconds: time limit for retries while nobody listens.

    Raises:
        CommError: the listener has refused this worker, or holds another key.
        OSError: nobody listens at the address.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            sock = transport.connect(address, _GREETING_SECONDS)
            with ExitStack() as undo:
                undo.callback(sock.close)
                _write_greeting(sock, [role, astuple(me), job])
                refusal, *peer = _read_greeting(sock, time.monotonic() + _GREETING_SECONDS)
                if refusal:
                    raise CommError(refusal)
                undo.pop_all()
            return Link(sock, Peer(*peer[0]))
        except (OSError, ValueError) as error:
            if time.monotonic() > end:
                raise OSError(str(error)) from error
        time.sleep(_RETRY)


def _write_greeting(sock: socket.socket, greeting: list[Any]) -> None:
    data = json.dumps(greeting).encode()
    sock.sendall(_SIZE.pack(len(data)) + data)


def _read_greeting(sock: socket.socket, end: float) -> list[Any]:
    (size,) = _SIZE.unpack(_read_exactly(sock, _SIZE.size, end))
    greeting = json.loads(_read_exactly(sock, size, end))
    if not isinstance(greeting, list):
        raise ValueError("no greeting")
    return greeting


def _read_exactly(sock: socket.socket, size: int, end: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(max(_RETRY, end - time.monotonic()))
        part = sock.recv(size - len(data))
        if not part or time.monotonic() > end:
            raise ValueError("no greeting")
        data += part
    return data
