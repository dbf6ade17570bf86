"""Tests of the limits on the size, the number and the time of requests."""

from __future__ import annotations

import contextlib
import select
import socket
import time

import pytest
from det_server._http_server import HEADER_BYTES
from det_server._request_bodies import BodyReader

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote import MAX_BODY_BYTES

from .serving import LIMIT, ServedSite, account_access, served


def test_large_bodies_are_refused_before_they_are_read(local: ServedSite) -> None:
    cases = {"/models": 1 << 20, "/login": 8 << 10, "/api/login": 8 << 10, "/api/experiments": 144 << 20}
    for path, limit in cases.items():
        answer = local.commands.request("POST", path, None, {"Content-Length": str(limit + 1)})
        assert answer.status == 413, path
    assert local.owner.request("GET", "/experiments", None, {"Content-Length": "5"}).status == 413


def test_nobody_can_upload_without_credentials(served_local: ServedSite) -> None:
    with socket.create_connection(served_local.client.address, timeout=LIMIT) as connection:
        head = f"POST /api/experiments HTTP/1.1\r\nHost: 127.0.0.1:{served_local.client.address[1]}\r\n"
        connection.sendall(f"{head}Content-Length: {100 << 20}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_bodies_in_memory_are_bounded_together() -> None:
    reader = BodyReader(buffered=100)
    with reader.reserve(60, "ann"):
        with pytest.raises(Exception, match="try again"), reader.reserve(60, "bob"):
            pass
        with reader.reserve(40, "bob"):
            pass
    with reader.reserve(100, "bob"):
        pass


def test_bodies_of_one_caller_are_bounded_together() -> None:
    reader = BodyReader(buffered=3 * MAX_BODY_BYTES)
    for _ in range(2):  # the memory is free again afterwards
        with reader.reserve(MAX_BODY_BYTES, "ann"):
            with pytest.raises(Exception, match="try again"), reader.reserve(1, "ann"):
                pass
            with reader.reserve(MAX_BODY_BYTES, "bob"):
                pass


def test_one_caller_leaves_memory_to_others(store: TrackingStore, quick_passwords: None) -> None:
    """Otherwise the token of a run, even one that has ended, could keep everybody from writing with two slow bodies."""
    with served(store, account_access) as site, contextlib.ExitStack() as stack:
        ann = site.program(site.add_user("ann"))
        trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
        store.start_run(trial.id, allocation_id="a")
        token = ann.call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
        store.end_run(trial.id, 1)
        host = f"Host: 127.0.0.1:{site.client.address[1]}\r\nAuthorization: Bearer {token}\r\n"
        slow = [stack.enter_context(socket.create_connection(site.client.address)) for _ in range(2)]
        for connection in slow:
            head = f"POST /api/store/create_experiment HTTP/1.1\r\n{host}Content-Length: {256 << 20}\r\n\r\n{{"
            connection.sendall(head.encode())
        (refused,), _, _ = select.select(slow, [], [], LIMIT)
        assert refused.recv(100).startswith(b"HTTP/1.1 503")
        assert "returned" in ann.call("/api/store/create_model", {"name": "m"}).json


def test_large_headers_are_refused(served_local: ServedSite) -> None:
    with contextlib.suppress(ConnectionError):
        assert served_local.client.get("/", X_Large="x" * (HEADER_BYTES + (1 << 20))).status in (400, 431)
    assert served_local.commands.get("/api/info").status == 200


def test_a_client_that_never_sends_its_headers_is_dropped(
    served_local: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_server._http_server.HEADER_SECONDS", 0.5)
    host = f"Host: 127.0.0.1:{served_local.client.address[1]}\r\n".encode()
    starts = (b"", b"GET /exp", b"GET / HTTP/1.1\r\n" + host, b"GET / HTTP/1.1\r\n" + host + b"\r\nGET / HT")
    connections = [socket.create_connection(served_local.client.address, timeout=LIMIT) for _ in starts]
    for connection, start in zip(connections, starts, strict=True):
        connection.sendall(start)
    for connection in connections[:-1]:
        assert _drip(connection)
    for connection in connections:
        connection.close()


def _drip(connection: socket.socket) -> bool:
    """Send a byte of a header from time to time, and return whether the server hangs up."""
    deadline = time.monotonic() + LIMIT
    connection.settimeout(0.1)
    while time.monotonic() < deadline:
        try:
            connection.sendall(b"x")
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_the_number_of_connections_is_bounded(served_local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_server._http_server.MAX_CONNECTIONS", 5)
    kept = [socket.create_connection(served_local.client.address, timeout=LIMIT) for _ in range(5)]
    kept[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert kept[-1].recv(8) == b"HTTP/1.1"
    with (
        socket.create_connection(served_local.client.address, timeout=LIMIT) as refused,
        contextlib.suppress(ConnectionError),
    ):
        assert refused.recv(1) == b""
    for connection in kept:
        connection.close()


def test_a_websocket_is_refused(served_local: ServedSite) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }
    assert served_local.client.request("GET", "/live", headers=upgrade).status == 401
