"""HTTP server that answers the calls of a tracking store as det server does, but without users and pages."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from weakref import WeakSet

from det_core.home import home_directory
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote import answer_call
from det_core.version import __version__

Route = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass
class Behaviour:
    """What a server does with requests. Tests change it while the server runs."""

    store: TrackingStore | None = None
    token: str = ""
    """Token that requests must have, if it is not empty."""
    version: str | None = __version__
    status: int = 200
    """Status of all answers. No request is executed if it is not 200."""
    lost_answers: int = 0
    """Number of the next executed requests whose answers are lost."""
    loses_each_answer_once: bool = False
    routes: dict[str, Route] = field(default_factory=dict)
    """Functions that answer other requests, by path."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that are sent, by path."""
    cuts: list[int] = field(default_factory=list)
    """Numbers of bytes after which the connections of the next answers with files break."""
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Paths and headers of all requests."""
    answered: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def loses(self, call_id: str | None) -> bool:
        """Return whether the answer to the present request gets lost."""
        with self.lock:
            if self.loses_each_answer_once and call_id and call_id not in self.answered:
                self.answered.add(call_id)
                return True
            self.lost_answers -= 1
            return self.lost_answers >= 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 30

    def __init__(self, behaviour: Behaviour, *args: Any) -> None:
        self._behaviour = behaviour
        super().__init__(*args)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path in self._behaviour.files and self._is_known:
            self._send_file(self._behaviour.files[self.path])
        else:
            self._answer(b"{}")

    @property
    def _is_known(self) -> bool:
        token = self._behaviour.token
        return not token or self.headers["Authorization"] == f"Bearer {token}"

    def _send_file(self, content: bytes) -> None:
        self._behaviour.requests.append((self.path, dict(self.headers)))
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if begin else 200)
        self.send_header("det-version", __version__)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = begin + self._behaviour.cuts.pop(0) if self._behaviour.cuts else None
        self.wfile.write(content[begin:end])
        self.close_connection = end is not None

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        behaviour = self._behaviour
        behaviour.requests.append((self.path, dict(self.headers)))
        if behaviour.status != 200:
            return self._send(behaviour.status, {"error": "not now"})
        if not self._is_known and self.path != "/api/login":
            return self._send(401, {"error": "the token is unknown"})
        status, answer = self._execute(body)
        if behaviour.loses(self.headers["det-call-id"]):
            self.close_connection = True
            return None
        return self._send(status, answer)

    def _execute(self, body: bytes) -> tuple[int, Mapping[str, Any] | bytes]:
        if method := self.path.removeprefix("/api/store/") if self.path.startswith("/api/store/") else "":
            assert self._behaviour.store
            return 200, answer_call(self._behaviour.store, method, body, call_id=self.headers["det-call-id"])
        if self.path == "/api/info" and self.path not in self._behaviour.routes:
            return 200, {"version": __version__, "user": "ada", "role": "ADMIN", "cluster_id": "c"}
        try:
            return 200, self._behaviour.routes[self.path](json.loads(body))
        except KeyError:
            return 404, {"error": f"there is no {self.path}"}
        except PermissionError as error:
            return 409, {"error": str(error)}

    def _send(self, status: int, answer: Mapping[str, Any] | bytes) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if self._behaviour.version is not None:
            self.send_header("det-version", self._behaviour.version)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connections: WeakSet[Any] = WeakSet()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def disconnect(self) -> None:
        """Close all connections, as the end of a process does."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def served(behaviour: Behaviour, *, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yield the URL of a server on this host, which runs in threads of this process."""
    with _Server(("127.0.0.1", port), partial(_Handler, behaviour)) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        server.disconnect()
        thread.join(10)


def saved_servers() -> list[str]:
    """Return the URLs of the servers for which a token is saved, sorted."""
    file = home_directory() / "tokens.json"
    return sorted(json.loads(file.read_text())) if file.exists() else []
