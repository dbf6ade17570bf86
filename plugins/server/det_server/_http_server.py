"""HTTP server that drops connections whose requests never arrive."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from det_server._certificate import load_certificate
from det_server._listener import BoundedListener

HEADER_SECONDS = 10.0
"""Maximum time from the first byte of a request, or the start of a connection, to the end of the headers. The handshake
of TLS has as much before."""
HEADER_BYTES = 64 << 10
"""Maximum size of the line and the headers of a request. The longest name of a metric has up to 47 KiB in a URL."""
STALL_SECONDS = 60.0
"""Maximum time for which the buffers of a connection stay full, because its client does not read the answer."""
CERTIFICATE_SECONDS = 60.0
"""Time between two looks at the files of the certificate."""
_KEEP_ALIVE_SECONDS = 60
_SHUTDOWN_SECONDS = 3

_log = logging.getLogger("det.server")


class LimitedProtocol(H11Protocol):
    """Protocol of one connection, with limits on the time for headers and for reading answers."""

    _last_event = 0.0
    """Time of the beginning of the last request, or of the end of its answer. Its parts count only if they come from
    somebody who is known, or strangers who send one byte after the other would be the last to give way."""
    _is_dropped = False
    _header_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        # asyncio does this only for sockets that know their protocol. Otherwise each answer waits 40 ms for an ACK.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_headers()
        self._last_event = time.monotonic()

    @property
    def idle_since(self) -> float | None:
        """Time since which the connection waits for its client, or None if it waits for the server, or is dropped.

        It waits for a request, for the rest of a body, for the client to read, or for the end of TLS.
        """
        for_request = self.cycle is None or self.cycle.response_complete
        for_body = self.conn.their_state is h11.SEND_BODY
        waits = for_request or for_body or self._stall_timer is not None or self.transport.is_closing()
        return self._last_event if waits and not self._is_dropped else None

    @property
    def person(self) -> str | None:
        """Name of the caller of the last request, or None if it had no valid credentials, or there was none."""
        principal = (self.scope or {}).get("state", {}).get("principal")
        return principal.name if principal else None

    def data_received(self, data: bytes) -> None:
        """Process data, and wait for the rest of the headers if they are incomplete."""
        begins = self.conn.their_state is h11.IDLE and self._header_timer is None
        if begins or self.person is not None:
            self._last_event = time.monotonic()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self._header_timer is None and self.conn.trailing_data[0]:
            self._await_headers()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless that has arrived meanwhile."""
        self._last_event = time.monotonic()
        super().on_response_complete()

    def close_idle(self) -> None:
        """Close the connection at once."""
        self._is_dropped = True
        self.transport.abort()

    def pause_writing(self) -> None:
        """Wait for the client to read what is in the buffers."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)
        self._last_event = time.monotonic()

    def resume_writing(self) -> None:
        """Continue to send the answer."""
        self._stop_stall_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_header_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


class AnnouncingServer(uvicorn.Server):
    """Server that reports when it answers requests, and uses renewed certificates.

    Args:
        config: settings of the server.
        certificate: files with the certificate and its key, or None for HTTP.
        on_started: function to call as soon as requests are answered.
    """

    def __init__(
        self, config: uvicorn.Config, certificate: tuple[Path, Path] | None, on_started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer requests."""
        if self._certificate:
            loop = asyncio.get_running_loop()  # uvicorn has no option for this, and asyncio waits for a minute
            create = partial(loop.create_server, ssl_handshake_timeout=HEADER_SECONDS)
            loop.create_server = create  # type: ignore[method-assign]
        for listener in sockets or ():
            if isinstance(listener, BoundedListener):
                listener.make_room = partial(_close_idle, listener, self.server_state.connections)
        await super().startup(sockets)
        if self._certificate and self.config.ssl:
            self._renewal = asyncio.create_task(_follow_certificate(self._certificate, self.config.ssl))
        self._on_started()


def _close_idle(listener: BoundedListener, connections: Collection[object]) -> bool:
    """Close the connection that has been idle longest, of the person who has most. Return whether one was idle.

    All strangers count as one person, and have those that are in the handshake of TLS.
    """
    limited = [one for one in connections if isinstance(one, LimitedProtocol)]
    known = {one.transport.get_extra_info("socket").fileno() for one in limited}
    shaking = [one for one in listener.accepted if one.fileno() not in known]
    counts = Counter(one.person for one in limited)
    counts[None] += len(shaking)
    idle: list[tuple[int, float, Callable[[], None]]] = [
        (counts[one.person], -since, one.close_idle) for one in limited if (since := one.idle_since) is not None
    ]
    idle += [(counts[None], -listener.accepted[one], partial(listener.drop, one)) for one in shaking]
    if not idle:
        return False
    _, _, close = max(idle, key=itemgetter(0, 1))
    close()
    return True


async def _follow_certificate(files: tuple[Path, Path], served: ssl.SSLContext) -> None:
    """Let new connections have the certificate that the files contain."""
    loaded = [_changed_at(file) for file in files]
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        present = [_changed_at(file) for file in files]
        if present == loaded:
            continue
        loaded = present
        try:
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), served):  # an unusable one changes nothing
                load_certificate(context, *files)
        except (OSError, ValueError) as error:
            _log.warning("the renewed certificate in %s cannot be used: %s", files[0], error)
        else:
            _log.warning("new connections have the renewed certificate in %s", files[0])


def _changed_at(file: Path) -> int:
    """Return the time of the last change, or 0 while the file is not there or cannot be read."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _is_own_failure(record: logging.LogRecord) -> bool:
    """Return whether a log record is about a failure of this server, not about its end or what a client sent."""
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno >= logging.ERROR and not isinstance(error, h11.ProtocolError | asyncio.CancelledError)


def make_server(
    app: ASGIApp, *, certificate: tuple[Path, Path] | None, on_started: Callable[[], None]
) -> uvicorn.Server:
    """Return a server, whose ``run(sockets=[listener])`` serves until the process is asked to stop.

    Args:
        app: the application.
        certificate: files with the certificate and its key, or None for HTTP.
        on_started: function to call as soon as requests are answered.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_own_failure)  # or strangers could fill the disk with its lines
    tls: dict[str, Any] = {}
    if certificate:
        # Older releases of uvicorn choose the ciphers of TLS 1.0, some of which encrypt nothing.
        tls = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1], "ssl_ciphers": ""}
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # URLs may contain tokens
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        **tls,
    )
    return AnnouncingServer(config, certificate, on_started)
