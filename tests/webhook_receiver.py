"""Receiver of webhooks on loopback, which checks signatures on its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Receiver that answers with the statuses in ``answers``, then with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int] = []
        self.requests: list[tuple[dict[str, str], Any]] = []
        """Headers and bodies of all requests."""
        self.targets: list[str] = []
        self.confirmed: list[Any] = []
        """Bodies of those that were answered with 200."""
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/hook"

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self.lock:
            self.requests.append((headers, json.loads(body)))
            status = self.answers.pop(0) if self.answers else 200
            if status == 200:
                self.confirmed.append(json.loads(body))
            return status


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.targets.append(self.path)
        status = self.server.take({name.lower(): value for name, value in self.headers.items()}, body)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def receiving(certificate: Path | None = None) -> Iterator[Receiver]:
    """Run a receiver during the block, with TLS if there is a certificate."""
    with Receiver() as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            server.url = server.url.replace("http", "https")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sign(key: str, headers: dict[str, str], body: bytes) -> str:
    """Return the signature of a request as Standard Webhooks 1.0 defines it."""
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    secret = base64.b64decode(key.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()
