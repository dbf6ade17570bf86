"""Sites and servers for tests, and a client that sends exactly what a test says."""

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

from det_server._access import Access, AccountAccess, LocalAccess
from det_server._http_server import make_server
from det_server._listener import BoundedListener
from det_server._passwords import hash_password
from det_server._server_process import ServerOptions, list_allowed_hosts, make_site
from det_server._site import Site
from starlette.types import ASGIApp

from det_core.interfaces.account_records import Role
from det_core.interfaces.tracking import TrackingStore

PASSWORD = "correct horse battery"
LIMIT = 60
_PORT = 8080
"""Port of sites that no server serves."""
T = TypeVar("T")
_hash = functools.cache(hash_password)
"""Hash of a password, which takes long, once for all tests."""


def wait_for(condition: Callable[[], T], seconds: float = LIMIT) -> T:
    """Return the first true result of ``condition``."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return result


def call_with_peak_memory(function: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """Return the result of a function, and the most bytes that Python had allocated meanwhile."""
    tracemalloc.start()
    try:
        return function(*arguments), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass
class Answer:
    """Response to a request."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str | None:
        """The cookie that the response sets, as ``name=value``."""
        found = self.headers["set-cookie"]
        return found.partition(";")[0] if found else None


@dataclass
class Client:
    """Client of a server at an address. Headers of the client go with every request, unless a request replaces them."""

    address: tuple[str, int]
    headers: dict[str, str] = field(default_factory=dict)
    app: ASGIApp | None = None
    """Application that is called instead of sending requests to the address."""

    def with_headers(self, **headers: str) -> Client:
        return replace(
            self, headers={**self.headers, **{name.replace("_", "-"): text for name, text in headers.items()}}
        )

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        merged: dict[str, str | None] = {"Host": f"{self.address[0]}:{self.address[1]}", **self.headers}
        merged.update(headers or {})
        if self.app is not None:
            return asyncio.run(_call(self.app, self.address, method, path, body, merged))
        connection = http.client.HTTPConnection(*self.address, timeout=LIMIT)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None and "Content-Length" not in merged:
                merged["Content-Length"] = str(len(body))
            for name, text in merged.items():
                if text is not None:
                    connection.putheader(name, text)
            connection.endheaders(body)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[str]]:
        """Send a GET request, and yield the lines of its answer as they arrive."""
        connection = http.client.HTTPConnection(*self.address, timeout=LIMIT)
        try:
            connection.request("GET", path, headers=self.headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (line.decode().rstrip("\n") for line in iter(response.readline, b""))
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})

    def post(self, path: str, fields: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Send a form as a page of the server does."""
        sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self.address[0]}:{self.address[1]}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        return self.request("POST", path, urlencode(fields or {}).encode(), sent)

    def call(self, path: str, body: object = None) -> Answer:
        """Send JSON as a program does."""
        return self.request("POST", path, json.dumps(body or {}).encode(), {"Content-Type": "application/json"})


async def _call(
    app: ASGIApp,
    address: tuple[str, int],
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str | None],
) -> Answer:
    """Call an application as a server does that has received a request."""
    path, _, query = target.partition("?")
    sent = {name: text for name, text in headers.items() if text is not None}
    if body is not None:
        sent.setdefault("Content-Length", str(len(body)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": address,
    }
    received = iter([{"type": "http.request", "body": body or b""}])
    answer = Answer(0, Message(), b"")

    async def receive() -> Any:
        return next(received, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, text in message["headers"]:
                answer.headers[name.decode("latin-1")] = text.decode("latin-1")
        elif method != "HEAD":
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


@dataclass
class ServedSite:
    """Site with its store, and clients of it."""

    site: Site
    client: Client
    """Client without credentials."""
    cookie_name: str

    @property
    def store(self) -> TrackingStore:
        return self.site.store

    @property
    def owner(self) -> Client:
        """Browser of the only user of a server without users."""
        assert isinstance(self.site.access, LocalAccess)
        cookie = self.client.get(f"/?token={self.site.access.link_token}").cookie
        assert cookie
        return self.client.with_headers(Cookie=cookie)

    @property
    def commands(self) -> Client:
        """Program of the only user of a server without users."""
        assert isinstance(self.site.access, LocalAccess)
        return self.client.with_headers(Authorization=f"Bearer {self.site.access.command_line_token}")

    def add_user(self, name: str, role: Role = Role.USER) -> str:
        self.store.create_user(name, role=role, password=_hash(PASSWORD))
        return name

    def log_in(self, name: str, password: str = PASSWORD) -> Client:
        """Return the browser of a user who has logged in."""
        answer = self.client.post("/login", {"user": name, "password": password})
        assert answer.status == 303, answer.text
        assert answer.cookie
        return self.client.with_headers(Cookie=answer.cookie)

    def program(self, name: str, password: str = PASSWORD) -> Client:
        """Return a program with a token of a user."""
        token = self.client.call("/api/login", {"user": name, "password": password}).json["token"]
        return self.client.with_headers(Authorization=f"Bearer {token}")


def _make_site(
    store: TrackingStore,
    make_access: Callable[[TrackingStore], Access],
    port: int,
    *proxy_hosts: str,
    checkpoint_storage: Path | None = None,
) -> tuple[Site, ASGIApp]:
    options = ServerOptions(
        store=None,
        host="127.0.0.1",
        port=port,
        users=False,
        checkpoint_storage=checkpoint_storage,
        tls_cert=None,
        tls_key=None,
        proxy_hosts=proxy_hosts,
        browser=False,
    )
    return make_site(options, store, make_access(store), list_allowed_hosts(options), port)


def site_without_server(
    store: TrackingStore,
    make_access: Callable[[TrackingStore], Access],
    *proxy_hosts: str,
    checkpoint_storage: Path | None = None,
) -> ServedSite:
    """Return a site whose clients call its application."""
    site, app = _make_site(store, make_access, _PORT, *proxy_hosts, checkpoint_storage=checkpoint_storage)
    return ServedSite(site, Client(("127.0.0.1", _PORT), app=app), f"det-{_PORT}")


@contextmanager
def served(
    store: TrackingStore,
    make_access: Callable[[TrackingStore], Access],
    certificate: tuple[Path, Path] | None = None,
    checkpoint_storage: Path | None = None,
) -> Iterator[ServedSite]:
    """Serve a store in a thread during the block."""
    with BoundedListener(socket.create_server(("127.0.0.1", 0)), per_network=True) as listener:
        port = listener.getsockname()[1]
        site, app = _make_site(store, make_access, port, checkpoint_storage=checkpoint_storage)
        started = threading.Event()
        server = make_server(app, certificate=certificate, on_started=started.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert started.wait(LIMIT)
        try:
            yield ServedSite(site, Client(("127.0.0.1", port)), f"det-{port}")
        finally:
            server.should_exit = True
            thread.join(LIMIT)
            assert not thread.is_alive()


@dataclass
class ServerProcess:
    """Child process of ``det server``."""

    process: subprocess.Popen[str]
    link: str
    """URL that it has printed."""

    @property
    def client(self) -> Client:
        parts = urlsplit(self.link)
        assert parts.hostname and parts.port
        return Client((parts.hostname, parts.port))

    @property
    def token(self) -> str:
        return self.link.partition("?token=")[2]


@contextmanager
def running_server(*options: str, home: Path | None = None) -> Iterator[ServerProcess]:
    """Run ``det server`` as a child process during the block."""
    environment = {**os.environ, **({"DET_HOME": str(home)} if home else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "det_core.cli", "server", "--port", "0", "--no-browser", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        found = re.fullmatch(r"det server: (\S+)\n", line)
        assert found, process.stderr.read()
        yield ServerProcess(process, found[1])
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def account_access(store: TrackingStore) -> AccountAccess:
    """Return access for people with accounts."""
    return AccountAccess(store)


def local_access(store: TrackingStore) -> LocalAccess:
    """Return access for the only user."""
    return LocalAccess(store, b"k" * 32)


def write_certificate(cert: Path, key: Path, *, days: int, address: str = "127.0.0.1") -> None:
    """Write a self-signed certificate for ``det.test``, this host and an address, and its key."""
    from datetime import datetime, timedelta, timezone
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "det.test")])
    names = [x509.DNSName("det.test"), x509.DNSName("localhost"), x509.IPAddress(ip_address(address))]
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1 + abs(days)))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(private, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(encoding, form, serialization.NoEncryption()))
