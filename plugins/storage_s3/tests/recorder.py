"""HTTP server that records requests and sends prescribed responses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    method: str
    url: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """Prescribed response."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Value of the header Content-Length, or None for the length of the body."""
    until: threading.Event | None = None
    """Event before which the response is not sent."""


Answers = Callable[[Request], Answer]


class Server(ThreadingHTTPServer):
    """Server that records requests and sends the responses that `answers` returns."""

    daemon_threads = True
    answers: Answers = staticmethod(lambda request: Answer())
    reads_slowly = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[Request] = []

    def handle_error(self, *args: Any) -> None:
        """Ignore errors of connections that clients close, which tests provoke."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        size, body = int(self.headers.get("Content-Length", 0)), b""
        while len(body) < size:
            body += self.rfile.read(min(size - len(body), 1 << 20))
            time.sleep(0.2 if self.server.reads_slowly else 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        if "authorization" in headers:  # requests without it are of others, who look for a server at this port
            self.server.requests.append(request)
        answer = self.server.answers(request)
        if answer.until:
            answer.until.wait(300)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
        self.end_headers()
        self.wfile.write(answer.body)
        self.close_connection = answer.length is not None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def log_message(self, *args: Any) -> None:
        """Write no log."""


@contextmanager
def recording() -> Iterator[Server]:
    """Serve on loopback until the block ends."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
