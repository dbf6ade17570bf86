"""Adversaries of a server: ``adversaries.py PORT TOKEN TRIAL``, until stdin is closed.

Each class has a thread and an address of its own, so that the limits of one address do not stop the others. The token
is that of a viewer. At the end, the answers that each has got are counted and printed as JSON.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

HELD = 60
"""Number of connections that an adversary holds open."""
UNREAD = 12
"""Number of answers that an adversary does not read. Each takes a second of the server's time."""
FLOOD = 250
"""Number of connections of a flood, which is more than an address may have."""
PAUSE = 0.05
"""Seconds between two attempts."""
LIMIT = 30
TRIED: dict[str, Counter[str]] = {}


class Adversary:
    """Client with an address of its own.

    Args:
        number: number of the adversary.
        port: port of the server.
        token: token of a viewer.
        trial: trial with many reports.
    """

    def __init__(self, number: int, port: int, token: str, trial: int) -> None:
        self.address = f"127.0.1.{number}"
        self.port = port
        self.token = token
        self.trial = trial
        self.tried = Counter[str]()
        self.stopped = threading.Event()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), LIMIT, (self.address, 0))

    def ask(self, verb: str, path: str, body: bytes | None = None, **headers: str) -> None:
        """Send a request, and count the status of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT, source_address=(self.address, 0))
        try:
            connection.request(verb, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            self.tried[str(connection.getresponse().status)] += 1
        except (OSError, http.client.HTTPException):
            self.tried["no answer"] += 1
        finally:
            connection.close()

    def dribble(self, beginning: bytes, number: int = HELD) -> None:
        """Open connections, send a beginning on each, then a byte per second, and replace those that are closed."""
        held: list[socket.socket] = []
        while not self.stopped.wait(1.0):
            kept = [one for one in held if _send(one, b"x")]
            self.tried["closed"] += len(held) - len(kept)
            held = kept
            while len(held) < number:
                connection = self.connect()
                _send(connection, beginning)
                held.append(connection)
        for connection in held:
            connection.close()

    def repeat(self, attempt: Callable[[], None]) -> None:
        while not self.stopped.wait(PAUSE):
            attempt()

    @property
    def authorization(self) -> str:
        return f"Bearer {self.token}"


def _send(connection: socket.socket, data: bytes) -> bool:
    """Send data, and return whether the server still listens."""
    try:
        connection.sendall(data)
        connection.setblocking(False)
        try:
            is_open = connection.recv(1 << 16) != b""
        except BlockingIOError:
            is_open = True
        connection.setblocking(True)
    except OSError:
        is_open = False
    if not is_open:
        connection.close()
    return is_open


def slow_headers(one: Adversary) -> None:
    one.dribble(b"GET /experiments HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")


def slow_bodies(one: Adversary) -> None:
    head = f"POST /api/store/models HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nAuthorization: {one.authorization}\r\n"
    one.dribble(f"{head}Content-Length: 1000000\r\n\r\n".encode())


def gzip_bombs(one: Adversary) -> None:
    bomb = gzip.compress(b" " * (256 << 20), 9)
    one.repeat(lambda: one.ask("POST", "/api/store/models", bomb, Authorization=one.authorization))


def wrong_logins(one: Adversary) -> None:
    body = json.dumps({"user": "ann", "password": "wrong"}).encode()
    one.repeat(lambda: one.ask("POST", "/api/login", body, Content_Type="application/json"))


def forged_addresses(one: Adversary) -> None:
    numbers = iter(range(1 << 30))
    body = json.dumps({"user": "ann", "password": "wrong"}).encode()

    def attempt() -> None:
        number = next(numbers)
        forged = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        one.ask("POST", "/api/login", body, X_Forwarded_For=forged, Forwarded=f"for={forged}", X_Real_IP=forged)

    one.repeat(attempt)


def calls_without_rights(one: Adversary) -> None:
    one.repeat(lambda: one.ask("POST", "/api/experiments/1/tensorboard/delete", b"{}", Authorization=one.authorization))


def many_streams(one: Adversary) -> None:
    head = f"GET /live?trials={one.trial} HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\n"
    one.dribble(f"{head}Authorization: {one.authorization}\r\n\r\n".encode())


def unread_answers(one: Adversary) -> None:
    body = json.dumps({"trial_id": one.trial}).encode()
    head = f"POST /api/store/metrics HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nAuthorization: {one.authorization}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    held: list[socket.socket] = []
    while not one.stopped.wait(1.0):
        while len(held) < UNREAD:
            connection = one.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request)
            held.append(connection)
            one.tried["sent"] += 1
        held.pop(0).close()


def floods(one: Adversary) -> None:
    while not one.stopped.wait(1.0):
        held = []
        for _ in range(FLOOD):
            try:
                held.append(one.connect())
            except OSError:
                one.tried["no answer"] += 1
        time.sleep(1.0)
        one.tried["closed"] += sum(not _send(connection, b"G") for connection in held)
        for connection in held:
            connection.close()


CLASSES = (
    slow_headers,
    slow_bodies,
    gzip_bombs,
    wrong_logins,
    forged_addresses,
    calls_without_rights,
    many_streams,
    unread_answers,
    floods,
)


def main() -> None:
    port, token, trial = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    adversaries = {attack: Adversary(number + 1, port, token, trial) for number, attack in enumerate(CLASSES)}
    threads = [threading.Thread(target=attack, args=(one,)) for attack, one in adversaries.items()]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    for one in adversaries.values():
        one.stopped.set()
    for thread in threads:
        thread.join()
    print(json.dumps({attack.__name__: one.tried for attack, one in adversaries.items()}), flush=True)


if __name__ == "__main__":
    main()
