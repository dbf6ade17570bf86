"""Requests to the receivers of webhooks.

They are signed as Standard Webhooks 1.0 (standardwebhooks.com) specifies. A receiver has the address that was checked:
its name is resolved once per request, and redirects are not followed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import io
import ipaddress
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from det_core.errors import DetError
from det_core.interfaces.secrets import mask_texts
from det_core.interfaces.webhook_records import WebhookFormat, WebhookRecord, secret_block
from det_core.tracking.printable import printable_text
from det_core.tracking.secret_files import resolve_secrets
from det_core.version import __version__

_SECONDS = 10.0
"""Maximum time for the lookup of a name, the connection, the request and the answer together."""
_KEY_PREFIX = "whsec_"
_CONNECTIONS = {"http": (http.client.HTTPConnection, 80), "https": (http.client.HTTPSConnection, 443)}
"""Kind of connection and default port of each scheme."""
_ANSWER_CHARACTERS = 200
_ANSWER_BYTES = 1 << 20
"""Number of bytes of an answer's body after which the rest is not awaited."""
_EMBEDDED = [ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")]
"""Networks whose addresses end with one of IPv4, which compatible, mapped and translated ones are."""
_SPECIAL = [ipaddress.IPv4Network(text) for text in ("192.0.0.0/24", "168.63.129.16")]
"""Networks of protocols and of a cloud's own services, some of which releases of Python count as public."""
_UNICAST, _DOCUMENTATION = ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("3fff::/20")
"""Networks of all public addresses of IPv6, and of some in it that are not (IANA's registry of special addresses).
Releases of Python count different ones of the others as public."""


def create_key() -> str:
    """Return a new key for signatures."""
    return _KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_url(url: str) -> SplitResult:
    """Return the parts of a receiver's URL.

    Args:
        url: the URL, which errors never quote, because it may contain a token.

    Raises:
        DetError: it is not one of HTTP, or contains a user or a password.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _CONNECTIONS and parts.hostname and parts.port != 0
    except ValueError:  # such as a port that is no number
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise DetError("the URL of a webhook is invalid; expected one such as https://example.org/hook?token=abc")
    if parts.username is not None:
        raise DetError("the URL of a webhook cannot contain a user or a password; put a token into its path")
    return parts


def send_event(webhook: WebhookRecord, event: Mapping[str, Any]) -> None:
    """Send an event to a webhook, and return once the receiver has confirmed it.

    Args:
        webhook: the receiver.
        event: the event, whose ``event_id`` stays the same when it is repeated.

    Raises:
        DetError: the receiver did not answer with success, or must not be called.
        SecretMissing: the secrets of the webhook are not on this host.
    """
    block = resolve_secrets(secret_block(webhook.name, webhook.url, webhook.key))["webhook"]
    url, key = block["url"], block["key"]
    parts = check_url(url)
    body = json.dumps(_BODIES[webhook.format](event)).encode()
    now = str(int(time.time()))
    identity = str(event["event_id"])
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"det/{__version__}",
        "webhook-id": identity,
        "webhook-timestamp": now,
        "webhook-signature": _sign(key, identity, now, body),
    }
    try:
        status, reason = _post(parts, body, headers, private=webhook.private)
    except (OSError, FutureTimeout, http.client.HTTPException, UnicodeError) as error:
        text = _hide_target(str(error) or type(error).__name__, parts)
        raise DetError(f"{parts.hostname} could not be reached: {text}") from None  # the cause might quote secrets
    if not 200 <= status < 300:
        raise DetError(f"{parts.hostname} answered {status} {_hide_target(reason, parts)}".rstrip())


def _hide_target(text: str, parts: SplitResult) -> str:
    """Return what a receiver says without the secret part of its URL, which it may repeat, and not all of it."""
    values = [value for _, value in parse_qsl(parts.query)]
    secrets = [parts.query, parts.path.strip("/"), *parts.path.split("/"), *values]
    return printable_text(mask_texts(text, [*secrets, *map(unquote, secrets)]))[:_ANSWER_CHARACTERS]


def _post(parts: SplitResult, body: bytes, headers: Mapping[str, str], *, private: bool) -> tuple[int, str]:
    """Post a body, and return the status of the answer, which has arrived whole."""
    deadline = time.monotonic() + _SECONDS
    host, (kind, default_port) = str(parts.hostname), _CONNECTIONS[parts.scheme]
    connection = kind(host, parts.port or default_port)
    connection.response_class = _WholeAnswer
    addresses = _find_addresses(host, connection.port, private=private)
    with closing(_connect(addresses, connection.port, deadline)) as plain:
        limit = threading.Timer(deadline - time.monotonic(), plain.shutdown, [socket.SHUT_RDWR])
        limit.daemon = True
        limit.start()
        try:
            with closing(_secure(plain, parts)) as connection.sock:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
                received = answer.read(_ANSWER_BYTES)
                if answer.length and len(received) < _ANSWER_BYTES:
                    raise http.client.IncompleteRead(received, answer.length)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer within {_SECONDS:g} s")
                return answer.status, answer.reason
        finally:
            limit.cancel()


def _secure(plain: socket.socket, parts: SplitResult) -> socket.socket:
    if parts.scheme == "http":
        return plain
    # The copy of the descriptor lets the time limit end the connection below TLS.
    return ssl.create_default_context().wrap_socket(plain.dup(), server_hostname=parts.hostname)


def _find_addresses(host: str, port: int, *, private: bool) -> Sequence[str]:
    """Return the addresses of a host that are public, or all of them if ``private``."""
    lookup: Future[list[Any]] = Future()

    def look_up() -> None:
        try:
            lookup.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001  (raised by the thread that waits)
            lookup.set_exception(error)

    threading.Thread(target=look_up, name="det-webhook-lookup", daemon=True).start()  # a lookup has no time limit
    found = [str(one[4][0]) for one in lookup.result(_SECONDS)]
    allowed = [address for address in found if private or _is_public(address)]
    if not allowed:
        raise DetError(f"{host} has the private address {found[0]}; to permit it, add the webhook with --private")
    return allowed


def _connect(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """Connect to the first address that answers. Each gets an equal part of the time that is left."""
    failure: OSError = TimeoutError("timed out")
    for number, address in enumerate(addresses):
        left = (deadline - time.monotonic()) / (len(addresses) - number)
        if left <= 0:
            break
        try:
            connected = socket.create_connection((address, port), timeout=left)
        except OSError as error:
            failure = error
        else:
            connected.settimeout(_SECONDS)
            return connected
    raise failure


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _EMBEDDED):
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif address in _DOCUMENTATION or address not in _UNICAST:
            return False
        else:
            address = address.sixtofour or address
    private = address.is_multicast or any(address in network for network in _SPECIAL)
    return address.is_global and not private


class _WholeAnswer(http.client.HTTPResponse):
    """Answer whose lines are whole. `HTTPResponse` takes the end of a connection for the end of the headers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fp = _WholeLines(self.fp.detach())


class _WholeLines(io.BufferedReader):
    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise http.client.IncompleteRead(line)
        return line


def _sign(key: str, identity: str, now: str, body: bytes) -> str:
    secret = base64.b64decode(key.removeprefix(_KEY_PREFIX))
    signed = hmac.new(secret, f"{identity}.{now}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def _as_message(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event as a message in Slack's format."""
    experiment = event["event_data"].get("experiment")
    if experiment is None:
        return {"text": "A test of det's webhook"}
    text = f"Experiment {experiment['id']} {_escape(experiment['name'])}: {experiment['state'].lower()}"
    return {"text": f"{text} after {experiment['duration']} s"}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_BODIES = {WebhookFormat.DEFAULT: lambda event: event, WebhookFormat.SLACK: _as_message}
