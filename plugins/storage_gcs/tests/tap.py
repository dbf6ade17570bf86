"""Proxy between the client and the emulator, if there is one, which records requests and can answer them itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    missing: int = 0
    """Number of bytes that the header Content-Length promises in addition to the body."""


def json_answer(status: int, value: Any, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


def refusal(status: int, said: str, **headers: str) -> Answer:
    return json_answer(status, {"error": {"code": status, "message": said}}, **headers)


Rule = Callable[[Request, Callable[[], Answer]], Answer | None]
"""Function of a request, and of a function that forwards it to the emulator. None closes the connection."""


class Tap:
    def __init__(self, emulator: str) -> None:
        self._emulator = urlsplit(emulator).netloc
        self.requests: list[Request] = []
        self.connections = 0
        self.address = ""
        self.rule: Rule = lambda request, forward: forward()
        self.lock = threading.Lock()

    def forward(self, request: Request) -> Answer:
        connection = HTTPConnection(self._emulator, timeout=30)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
        connection.request(request.method, request.target, request.body, headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        kept = {name: value for name, value in response.headers.items() if name.lower() in ("content-type", "location")}
        return Answer(response.status, body, kept)


@contextmanager
def tap(emulator: str = "") -> Iterator[Tap]:
    spy = Tap(emulator)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 30

        def setup(self) -> None:
            super().setup()
            with spy.lock:
                spy.connections += 1

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, dict(self.headers), body)
            with spy.lock:
                spy.requests.append(request)
            answer = spy.rule(request, lambda: spy.forward(request))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": len(answer.body) + answer.missing}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = bool(answer.missing)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore errors of connections that clients close."""

    with Server(("127.0.0.1", 0), Handler) as server:
        spy.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield spy
        finally:
            server.shutdown()
            thread.join(30)
