"""Listening socket that drops connections beyond its limits, before TLS and HTTP cost anything."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from det_server._client_address import client_network
from det_server._shares import Shares

MAX_CONNECTIONS = 800
"""Maximum number of connections. Processes usually may open 1024 files."""
MAX_CONNECTIONS_PER_NETWORK = 200
"""Maximum number of connections of an address, or of a network of 64 bits of IPv6."""
_CLOSING = 100
"""Number of connections beyond the maximum that are being closed. asyncio accepts as many at once."""

_log = logging.getLogger("det.server")


class BoundedListener(socket.socket):
    """Listening socket that drops connections beyond its limits.

    Args:
        listener: listening socket, which this one replaces.
        per_network: whether connections of each network are limited as well. A proxy has those of all clients.
    """

    def __init__(self, listener: socket.socket, *, per_network: bool) -> None:
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._most_per_network = MAX_CONNECTIONS_PER_NETWORK if per_network else MAX_CONNECTIONS
        self._open = Shares()
        self._refused: set[str] = set()
        self.accepted: dict[socket.socket, float] = {}
        """Open connections with the time at which each was accepted."""
        self.make_room: Callable[[], bool] = lambda: False
        """Function that closes a connection that nobody needs, and returns whether there was one."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: there are too many, and it was closed.
        """
        connection, address = super().accept()
        network = client_network(address[0])
        if not self._take(network):
            connection.close()
            self._report(network)
            raise ConnectionAbortedError("there are too many connections")
        accepted = _Connection(connection, lambda: self._forget(network, accepted))
        self.accepted[accepted] = time.monotonic()
        return accepted, address

    def drop(self, connection: socket.socket) -> None:
        """End a connection that asyncio has not handed over yet."""
        del self.accepted[connection]
        with suppress(OSError):  # its client has ended it
            connection.shutdown(socket.SHUT_RDWR)

    def _take(self, network: str) -> bool:
        each = self._most_per_network
        if self._open.take(network, each=each, total=MAX_CONNECTIONS):
            return True
        has_room = self._open.of(network) < each and self.make_room()
        return has_room and self._open.take(network, each=each, total=MAX_CONNECTIONS + _CLOSING)

    def _report(self, network: str) -> None:
        """Write a line for the first of the connections that are refused in a row."""
        if network not in self._refused:
            self._refused.add(network)
            _log.warning(
                "connections of %s are refused: it has %d, and all clients have %d",
                network,
                self._open.of(network),
                self._open.total,
            )

    def _forget(self, network: str, connection: socket.socket) -> None:
        self.accepted.pop(connection, None)
        self._open.give_back(network)
        self._refused.discard(network)


class _Connection(socket.socket):
    """Connection that tells when it is closed."""

    def __init__(self, connection: socket.socket, on_close: Callable[[], None]) -> None:
        super().__init__(connection.family, connection.type, connection.proto, connection.detach())
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        super().close()
        on_close, self._on_close = self._on_close, None
        if on_close:
            on_close()
