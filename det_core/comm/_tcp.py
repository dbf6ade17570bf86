"""TCP connections under TLS."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from typing import Final

from det_core.comm import _tls
from det_core.comm._handshake import KeyMismatch
from det_core.errors import CommError

_BACKLOG: Final = 1024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Socket options after which a silent host counts as dead after 30 s.

Kernels answer, so a busy or stopped process is not silent.
"""
_UNANSWERED: Final = 30_000
"""Milliseconds after which a connection ends if sent data is not acknowledged."""


class TcpTransport:
    """Connections to peers that hold the same DET_COMM_KEY.

    Args:
        here: address at which peers reach this host, which is sent to them.
        bind: address to listen at, or "" for all addresses of this host.
        carries_payloads: whether payloads are sent. If False, a silent host is noticed even while data is in flight.
            This time limit would also end connections to a peer that does not read for 30 s.

    Raises:
        ValueError: the key is missing or too short.
    """

    def __init__(self, here: str, bind: str, *, carries_payloads: bool) -> None:
        self._here, self._bind = here, bind
        self._server, self._client = _tls.make_tls_contexts()
        self._carries_payloads = carries_payloads

    def fresh(self) -> tuple[str, int]:
        """Return this host's address with port 0, for which the kernel chooses a free port."""
        return self._here, 0

    def address_of(self, sock: socket.socket) -> tuple[str, int]:
        """Return the address and the port at which peers reach a listening socket."""
        return self._here, sock.getsockname()[1]

    def listen(self, address: tuple[str, int]) -> socket.socket:
        """Listen at the port of ``address``.

        Raises:
            CommError: the port is in use, or the address does not belong to this host.
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
            KeyMismatch: the peer holds another key.
            OSError: the peer did not authenticate.
        """
        self._prepare(sock)
        try:
            return self._server.wrap_socket(sock, server_side=True)
        except ssl.SSLError as error:
            if error.reason == "TLSV1_ALERT_UNKNOWN_CA":
                raise KeyMismatch(f"it holds another {_tls.KEY}") from error
            raise

    def connect(self, address: tuple[str, int], timeout: float) -> ssl.SSLSocket:
        """Connect to a peer, with a time limit of ``timeout`` seconds for each step.

        Raises:
            CommError: the peer holds another key.
            OSError: the peer could not be reached.
        """
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
        """Do nothing, because a closed TCP listener leaves nothing behind."""

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = _KEEPALIVE if self._carries_payloads else {**_KEEPALIVE, "TCP_USER_TIMEOUT": _UNANSWERED}
        for name, value in options.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
