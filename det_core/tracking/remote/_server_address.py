"""Addresses of det servers, as users write them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit

from det_core.errors import TrackingError

_PORTS = {"http": 80, "https": 443}
_EXPECTED = "expected https://HOST:PORT, or http://127.0.0.1:PORT as det server prints it"


class ServerAddress(NamedTuple):
    """Address of a det server."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """URL without a token, which always has the same form for the same server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


def parse_server_url(url: str) -> tuple[ServerAddress, str | None]:
    """Return the address of a server, and the token if the URL contains one.

    Args:
        url: ``https://HOST[:PORT]``, or ``http://`` for a server on this host, possibly with ``?token=TOKEN``.

    Raises:
        TrackingError: the URL is malformed, or would send tokens over a network without encryption.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    shown = url.partition("?")[0].rpartition("@")[2]
    token = _token(parts)
    is_plain = parts.scheme in _PORTS and parts.path in ("", "/") and not parts.fragment and "@" not in parts.netloc
    if not host or not is_plain or token == "":
        raise TrackingError(f"{shown!r} is not the URL of a det server; {_EXPECTED}")
    if parts.scheme == "http" and not _is_loopback(host):
        raise TrackingError(
            f"{shown} would send your token over the network without encryption; use https://, or a tunnel: "
            f"ssh -L {port or 8080}:127.0.0.1:{port or 8080} {host}, and then http://127.0.0.1:{port or 8080}"
        )
    return ServerAddress(parts.scheme, host, _PORTS[parts.scheme] if port is None else port), token


def _token(parts: SplitResult) -> str | None:
    """Return the token in the query of a URL, None without a query, or an empty string if the query is another."""
    if not parts.query:
        return None
    found = parse_qs(parts.query)
    return found["token"][0] if found.keys() == {"token"} and len(found["token"]) == 1 else ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
