"""Names under which browsers may reach the server, against DNS rebinding and requests from other sites (CSRF)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
"""Pattern of a Host header in lower case, with a name or an address and perhaps a port."""
_TOP_LEVEL = ("document", "")
"""Values of Sec-Fetch-Dest of a page that is not inside another one."""


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only. A name counts only if it is ``localhost``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_in_url(host: str) -> str:
    """Return a name or an address as in a URL, with brackets if it is an address of IPv6."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


@dataclass(frozen=True)
class AllowedHosts:
    """Names that requests may carry, with any port, because a port may be forwarded from another one.

    Args:
        scheme: ``http`` or ``https``.
        names: permitted host names and addresses, those of IPv6 in brackets. ``*.`` stands for one label.
    """

    scheme: str
    names: Collection[str]

    def permits_host(self, header: str) -> bool:
        """Return whether a Host header names this server."""
        found = _HOST.fullmatch(header.lower())
        return found is not None and any(_matches(found[1], allowed.lower()) for allowed in self.names)


def _matches(name: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return name.partition(".")[2] == allowed[2:]
    return name == allowed


def is_same_origin(headers: Mapping[str, str], hosts: AllowedHosts) -> bool:
    """Return whether the browser says that a page of this server, or nothing but its user, sent the request.

    Pages of other ports of the same host are other origins, although cookies do not distinguish them.
    """
    origin, fetch_site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin.lower() != f"{hosts.scheme}://{headers['host']}".lower():
        return False
    return fetch_site in (None, "same-origin", "none")


def names_its_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the request says which site it comes from, as all browsers do unless they only read."""
    return "origin" in headers or "sec-fetch-site" in headers


def is_link(headers: Mapping[str, str]) -> bool:
    """Return whether the user follows a link of another site to a page of this server."""
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "") in _TOP_LEVEL
