"""Requests to the receivers of webhooks.

They are signed as Standard Webhooks 1.0 (standardwebhooks.com) specifies. A receiver has the address that was checked:
its name is resolved once per request, and redirects are not followed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import SplitResult, urlsplit

from det_core.errors import DetError
from det_core.interfaces.secrets import MASK
from det_core.interfaces.webhook_records import WebhookFormat, WebhookRecord
from det_core.tracking.secret_files import resolve_secrets
from det_core.version import __version__

_SECONDS = 10.0
"""Maximum time for a request, and for the connection before it."""
_KEY_PREFIX = "whsec_"
_CONNECTIONS = {"http": (http.client.HTTPConnection, 80), "https": (http.client.HTTPSConnection, 443)}
"""Kind of connection and default port of each scheme."""
_ANSWER_CHARACTERS = 200


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
    url, key = resolve_secrets([webhook.url, webhook.key])
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
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        text = _hide_target(str(error) or type(error).__name__, parts)
        raise DetError(f"{parts.hostname} could not be reached: {text}") from None  # the cause might quote secrets
    if not 200 <= status < 300:
        raise DetError(f"{parts.hostname} answered {status} {_hide_target(reason, parts)}".rstrip())


def _hide_target(text: str, parts: SplitResult) -> str:
    """Return what a receiver says without the secret part of its URL, which it may repeat, and not all of it."""
    for secret in (parts.query, parts.path.strip("/")):
        text = text.replace(secret, MASK) if secret else text
    return text[:_ANSWER_CHARACTERS]


def _post(parts: SplitResult, body: bytes, headers: Mapping[str, str], *, private: bool) -> tuple[int, str]:
    """Post a body, and return the status of the answer. The answer's own body is not read."""
    host, (kind, default_port) = str(parts.hostname), _CONNECTIONS[parts.scheme]
    connection = kind(host, parts.port or default_port)
    with closing(_connect(host, connection.port, private=private)) as plain:
        limit = threading.Timer(_SECONDS, plain.shutdown, [socket.SHUT_RDWR])
        limit.daemon = True
        limit.start()
        try:
            with closing(_secure(plain, parts)) as connection.sock:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.reason
        finally:
            limit.cancel()


def _secure(plain: socket.socket, parts: SplitResult) -> socket.socket:
    if parts.scheme == "http":
        return plain
    # The copy of the descriptor lets the time limit end the connection below TLS.
    return ssl.create_default_context().wrap_socket(plain.dup(), server_hostname=parts.hostname)


def _connect(host: str, port: int, *, private: bool) -> socket.socket:
    """Connect to an address of a host, which is public unless ``private``."""
    found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    allowed = [address for address in found if private or _is_public(address)]
    if not allowed:
        raise DetError(f"{host} has the private address {found[0]}; to permit it, add the webhook with --private")
    for address in allowed[:-1]:
        try:
            return socket.create_connection((address, port), timeout=_SECONDS)
        except OSError:  # the next address may work, and the error of the last one is reported
            continue
    return socket.create_connection((allowed[-1], port), timeout=_SECONDS)


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    return inner.is_global and not inner.is_multicast


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
