"""Names under which browsers may reach the server, against DNS rebinding and requests from other sites."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FRAMED = ("document", "")
"""Values of Sec-Fetch-Dest of a page that is not inside another one."""


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only. A name counts only if it is ``localhost``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class AllowedHosts:
    """Names and origins that requests may carry.

    Args:
        scheme: ``http`` or ``https``.
        names: permitted host names and addresses, those of IPv6 in brackets. ``*.`` stands for one label.
        port: port that browsers connect to, or None for any.
    """

    scheme: str
    names: Collection[str]
    port: int | None

    def permits_host(self, header: str) -> bool:
        """Return whether a Host header names this server."""
        try:
            parts = urlsplit(f"//{header}")
            name, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[self.scheme]
        except ValueError:
            return False
        if parts.netloc != header or "@" in header or any(character in header for character in "/\\?#, \t"):
            return False
        shown = f"[{name}]" if ":" in name else name
        known = any(_matches(shown, allowed) for allowed in self.names)
        return known and self.port in (None, port)

    def permits_origin(self, origin: str) -> bool:
        """Return whether an Origin header names this server."""
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme == self.scheme and self.permits_host(host)


def _matches(name: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return name.partition(".")[2] == allowed[2:].lower()
    return name == allowed.lower()


def is_same_origin(headers: Mapping[str, str], hosts: AllowedHosts) -> bool:
    """Return whether the browser says that a page of this server, or nothing but its user, sent the request.

    Pages of other ports of the same host are other origins, although cookies do not distinguish them.
    """
    origin, fetch_site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and not hosts.permits_origin(origin):
        return False
    return fetch_site in (None, "same-origin", "none")


def names_its_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the request says which site it comes from, as all browsers do unless they only read."""
    return "origin" in headers or "sec-fetch-site" in headers


def is_link(headers: Mapping[str, str]) -> bool:
    """Return whether the user follows a link of another site to a page of this server."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "") in _FRAMED
