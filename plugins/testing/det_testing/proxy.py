"""HTTP proxy on loopback that simulates failures of networks and servers."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Final, TypeAlias

_CHUNK: Final = 1 << 16
_NO_BODY: Final = ("HEAD", "204", "304")


class Fault(Enum):
    """Failure of one request."""

    RESET = "the connection breaks before the server sees the request"
    BREAK = "the connection breaks in the middle of the request's body"
    LOSE = "the server handles the request, and its response is lost"
    TRUNCATE = "the connection ends in the middle of the response"
    STALL = "no more data arrives, and the connection stays open"
    CORRUPT = "one bit of the response's body is flipped"
    CORRUPT_REQUEST = "one bit of the request's body is flipped"
    ERROR = "500 Internal Server Error"
    UNAVAILABLE = "503 Service Unavailable"
    SLOW_DOWN = "503 Slow Down"


@dataclass(frozen=True)
class ProxiedRequest:
    """The part of a request that a proxy reads before the body.

    Attributes:
        method: HTTP method.
        target: path and query.
        size: size of the body in bytes.
    """

    method: str
    target: str
    size: int


FaultPlan: TypeAlias = "Callable[[ProxiedRequest], Fault | None]"
"""Function that chooses the fault of each request, or None for no fault. Called from a thread per connection."""

_ANSWERS: Final = {
    Fault.ERROR: ("500 Internal Server Error", "InternalError"),
    Fault.UNAVAILABLE: ("503 Service Unavailable", "ServiceUnavailable"),
    Fault.SLOW_DOWN: ("503 Slow Down", "SlowDown"),
}


class FaultyProxy:
    """Proxy that forwards HTTP/1.1 requests to a server and simulates the faults that its plan chooses.

    Args:
        host: host of the server.
        port: port of the server.
        plan: chooses the faults. It may be replaced at any time.
        delay: delay of each response in seconds.
        stall: time in seconds after which a stalled connection is closed.
    """

    def __init__(
        self, host: str, port: int, plan: FaultPlan = lambda request: None, *, delay: float = 0, stall: float = 60
    ):
        self.plan, self.delay = plan, delay
        self._server, self._stall = (host, port), stall
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Port on which it listens, on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening, and break the open connections."""
        self._closing.set()
        _break(self._listener)
        for sock in list(self._open):
            _break(sock)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            suppress(OSError, _Ended),
            self._opened(client),
            client.makefile("rb") as incoming,
            self._opened(socket.create_connection(self._server, timeout=60)) as server,
            server.makefile("rb") as answers,
        ):
            while True:
                self._exchange(client, incoming, server, answers)

    @contextmanager
    def _opened(self, sock: socket.socket) -> Iterator[socket.socket]:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(sock)
        try:
            with sock:
                yield sock
        finally:
            self._open.discard(sock)

    def _exchange(self, client: socket.socket, incoming: BinaryIO, server: socket.socket, answers: BinaryIO) -> None:
        start, headers = _head(incoming)
        method, target, _ = start.split(" ", 2)
        size = int(headers.get("content-length", 0))
        fault = self.plan(ProxiedRequest(method, target, size))
        if fault is Fault.RESET:
            _break(client)
            raise _Ended
        if headers.pop("expect", ""):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = _flipped(_exactly(incoming, size)) if fault is Fault.CORRUPT_REQUEST else _exactly(incoming, size)
        if fault in _ANSWERS:
            for _ in body:
                pass
            _answer(client, method, *_ANSWERS[fault])
            return
        server.sendall(_joined(start, headers))
        for piece in _first_half(body, size) if fault is Fault.BREAK else body:
            server.sendall(piece)
        if fault is Fault.BREAK:
            _break(server)
            _break(client)
            raise _Ended
        self._answer(client, method, answers, fault)

    def _answer(self, client: socket.socket, method: str, answers: BinaryIO, fault: Fault | None) -> None:
        start, headers = _head(answers)
        while start.split(" ")[1] == "100":
            start, headers = _head(answers)
        if fault is Fault.STALL:
            self._closing.wait(self._stall)
        if fault in (Fault.LOSE, Fault.STALL):
            _break(client)
            raise _Ended
        if self.delay:
            time.sleep(self.delay)
        has_body = method not in _NO_BODY and start.split(" ")[1] not in _NO_BODY
        size = int(headers.get("content-length", 0)) if has_body else 0
        chunked = has_body and headers.get("transfer-encoding") == "chunked"
        body = _chunks(answers) if chunked else _exactly(answers, size)
        if fault is Fault.CORRUPT and not chunked:
            body = _flipped(body)
        client.sendall(_joined(start, headers))
        for piece in _first_half(body, size) if fault is Fault.TRUNCATE else body:
            client.sendall(piece)
        if fault is Fault.TRUNCATE or headers.get("connection", "").lower() == "close":
            raise _Ended


class _Ended(Exception):
    """The connection has ended."""


def _head(stream: BinaryIO) -> tuple[str, dict[str, str]]:
    start = stream.readline().decode("latin-1").rstrip("\r\n")
    if not start:
        raise _Ended
    headers = {}
    while line := stream.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return start, headers


def _joined(start: str, headers: dict[str, str]) -> bytes:
    lines = [start, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _exactly(stream: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = stream.read(min(size, _CHUNK))
        if not piece:
            raise _Ended
        size -= len(piece)
        yield piece


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while True:
        line = stream.readline()
        size = int(line.split(b";")[0], 16)
        yield line
        yield from _exactly(stream, size + 2)
        if not size:
            return


def _first_half(body: Iterator[bytes], size: int) -> Iterator[bytes]:
    left = size // 2
    while left:
        piece = next(body)[:left]
        left -= len(piece)
        yield piece


def _flipped(body: Iterator[bytes]) -> Iterator[bytes]:
    for piece in body:
        yield bytes([piece[0] ^ 1]) + piece[1:]
        break
    yield from body


def _answer(client: socket.socket, method: str, status: str, code: str) -> None:
    text = f"<Error><Code>{code}</Code><Message>made by a test</Message></Error>".encode()
    headers = {"content-type": "application/xml", "content-length": str(len(text))}
    client.sendall(_joined(f"HTTP/1.1 {status}", headers) + (b"" if method == "HEAD" else text))


def _break(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
