"""The proxy forwards requests unchanged, and simulates each fault."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from det_testing.proxy import Fault, FaultPlan, FaultyProxy, ProxiedRequest

BODY = bytes(range(256)) * 300  # more than one piece


class Echo(BaseHTTPRequestHandler):
    """Server that answers with the body of the request, or with `BODY`, and records what it receives."""

    protocol_version = "HTTP/1.1"
    received: list[tuple[str, str, bytes]]

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(size)
        self.received.append((self.command, self.path, content))
        if len(content) < size:
            self.close_connection = True
            return
        self.send_response(200)
        answer = content or BODY
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            answer = b"%x\r\n%b\r\n0\r\n\r\n" % (len(answer), answer)
        else:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_PUT = do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *arguments: object) -> None:
        """Print nothing about connections that the proxy breaks."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    handler = type("Recorder", (Echo,), {"received": []})
    with QuietServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def received(server: ThreadingHTTPServer) -> list[tuple[str, str, bytes]]:
    """Return the requests that reach the server: method, path and body."""
    return server.RequestHandlerClass.received  # type: ignore[attr-defined]


@pytest.fixture
def proxy(server: ThreadingHTTPServer) -> Iterator[FaultyProxy]:
    with closing(FaultyProxy("127.0.0.1", server.server_port, stall=0.1)) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultyProxy) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)) as client:
        yield client


def ask(client: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Send a request, and return the status and the body of the response."""
    client.request(method, path, body)
    response = client.getresponse()
    return response.status, response.read()


def always(fault: Fault) -> FaultPlan:
    return lambda request: fault


def test_requests_and_responses_are_forwarded_on_one_connection(
    proxy: FaultyProxy, client: http.client.HTTPConnection, received: list[tuple[str, str, bytes]]
) -> None:
    seen: list[ProxiedRequest] = []
    proxy.plan = seen.append
    assert ask(client, "PUT", "/a?b=c", BODY) == (200, BODY)
    assert ask(client, "HEAD", "/head") == (200, b"")
    assert ask(client, "GET", "/chunked") == (200, BODY)
    assert ask(client, "GET", "/a") == (200, BODY)
    assert received == [
        ("PUT", "/a?b=c", BODY), ("HEAD", "/head", b""), ("GET", "/chunked", b""), ("GET", "/a", b"")
    ]  # fmt: skip
    assert seen[:2] == [ProxiedRequest("PUT", "/a?b=c", len(BODY)), ProxiedRequest("HEAD", "/head", 0)]


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [(Fault.RESET, None), (Fault.BREAK, len(BODY) // 2), (Fault.LOSE, len(BODY)), (Fault.STALL, len(BODY))],
)
def test_a_connection_breaks_before_in_or_after_the_request(
    proxy: FaultyProxy,
    client: http.client.HTTPConnection,
    received: list[tuple[str, str, bytes]],
    fault: Fault,
    arrives: int | None,
) -> None:
    proxy.plan = always(fault)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(client, "PUT", "/a", BODY)
    if fault is not Fault.BREAK:  # its request may end with an error of the server
        assert [len(body) for _, _, body in received] == ([] if arrives is None else [arrives])
    assert all(len(body) <= (arrives or 0) for _, _, body in received)


def test_a_response_is_truncated(proxy: FaultyProxy, client: http.client.HTTPConnection) -> None:
    proxy.plan = always(Fault.TRUNCATE)
    client.request("GET", "/a")
    with pytest.raises(http.client.IncompleteRead) as caught:
        client.getresponse().read()
    assert caught.value.partial == BODY[: len(BODY) // 2]


def test_one_bit_of_the_response_is_flipped(
    proxy: FaultyProxy, client: http.client.HTTPConnection, received: list[tuple[str, str, bytes]]
) -> None:
    proxy.plan = always(Fault.CORRUPT)
    assert ask(client, "PUT", "/a", BODY) == (200, bytes([BODY[0] ^ 1]) + BODY[1:])
    assert received == [("PUT", "/a", BODY)]


def test_one_bit_of_the_request_is_flipped(
    proxy: FaultyProxy, client: http.client.HTTPConnection, received: list[tuple[str, str, bytes]]
) -> None:
    proxy.plan = always(Fault.CORRUPT_REQUEST)
    ask(client, "PUT", "/a", BODY)
    assert received == [("PUT", "/a", bytes([BODY[0] ^ 1]) + BODY[1:])]


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault.ERROR, 500, b"InternalError"),
        (Fault.UNAVAILABLE, 503, b"ServiceUnavailable"),
        (Fault.SLOW_DOWN, 503, b"SlowDown"),
    ],
)
def test_errors_are_answered_in_place_of_the_server(
    proxy: FaultyProxy,
    client: http.client.HTTPConnection,
    received: list[tuple[str, str, bytes]],
    fault: Fault,
    status: int,
    code: bytes,
) -> None:
    proxy.plan = always(fault)
    answered, text = ask(client, "PUT", "/a", BODY)
    assert answered == status and b"<Code>%b</Code>" % code in text
    assert ask(client, "HEAD", "/a") == (status, b"")
    assert received == []
    proxy.plan = lambda request: None
    assert ask(client, "GET", "/a") == (200, BODY)


def test_responses_are_delayed(proxy: FaultyProxy, client: http.client.HTTPConnection) -> None:
    proxy.delay = 0.1
    began = time.monotonic()
    assert ask(client, "GET", "/a") == (200, BODY)
    assert time.monotonic() - began >= 0.1


def test_close_breaks_open_connections(proxy: FaultyProxy, client: http.client.HTTPConnection) -> None:
    assert ask(client, "GET", "/a") == (200, BODY)
    proxy.close()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(client, "GET", "/a")
    with pytest.raises(ConnectionRefusedError):
        ask(http.client.HTTPConnection("127.0.0.1", client.port), "GET", "/a")
