"""TCP connections under TLS."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from typing import Final

from det_core.comm import _tls
from det_core.comm._greeting import OtherKey
from det_core.errors import CommError

_BACKLOG: Final = 1024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""A silent host is dead after 30 s. Kernels answer, so a busy or stopped process is not silent."""
_UNANSWERED: Final = 30_000
"""Milliseconds after which sent data that nobody acknowledged end a connection."""


class Tcp:
    """Connections to peers that hold the same DET_COMM_KEY.

    Args:
        here: the address under which peers reach this host, told to them.
        bind: the address to listen at; empty = all of this host's.
        carries_payloads: where False, also data in flight do not delay the finding that a host is silent. That
            limit would end connections to a peer that does not read for 30 s, so payloads go without.

    Raises:
        ValueError: the key is missing or too short.
    """

    def __init__(self, here: str, bind: str, *, carries_payloads: bool) -> None:
        self._here, self._bind = here, bind
        self._server, self._client = _tls.contexts()
        self._carries_payloads = carries_payloads

    def fresh(self) -> tuple[str, int]:
        return self._here, 0

    def address_of(self, sock: socket.socket) -> tuple[str, int]:
        return self._here, sock.getsockname()[1]

    def listen(self, address: tuple[str, int]) -> socket.socket:
        """Listen at the port of ``address``.

        Raises:
            CommError: it is taken.
        """
        host, port = self._bind, address[1]
        everywhere = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=everywhere)
        except OSError as error:
            advice = "; pass another port_offset to DistributedContext" if error.errno == errno.EADDRINUSE else ""
            raise CommError(
                f"cannot listen at {host or 'any address'}, port {port}: {error.strerror}{advice}"
            ) from error

    def accept(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return the connection of a peer that authenticated within the socket's time limit.

        Raises:
            OtherKey: the peer trusts another certificate than this job's.
        """
        self._prepare(sock)
        try:
            return self._server.wrap_socket(sock, server_side=True)
        except ssl.SSLError as error:
            if error.reason == "TLSV1_ALERT_UNKNOWN_CA":
                raise OtherKey(f"it holds another {_tls.KEY}") from error
            raise

    def connect(self, address: tuple[str, int], timeout: float) -> ssl.SSLSocket:
        with contextlib.ExitStack() as undo:
            sock = undo.enter_context(socket.create_connection(address, timeout))
            self._prepare(sock)
            try:
                secure = self._client.wrap_socket(sock)
            except ssl.SSLCertVerificationError as error:
                raise CommError(
                    f"the process that listens at {address} has another {_tls.KEY}; set the same for all workers"
                ) from error
            undo.pop_all()
        return secure

    def forget(self, address: tuple[str, int]) -> None:
        """Nothing is left of a closed TCP listener."""

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = _KEEPALIVE if self._carries_payloads else {**_KEEPALIVE, "TCP_USER_TIMEOUT": _UNANSWERED}
        for name, value in options.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
