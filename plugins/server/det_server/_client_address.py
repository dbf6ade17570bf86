"""Network addresses of clients."""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import Scope


def client_address(scope: Scope, headers: Headers, *, behind_proxy: bool) -> str:
    """Return the address of the client. Only a proxy that was named is believed about it."""
    direct = scope["client"][0] if scope.get("client") else ""
    if not behind_proxy:
        return str(direct)
    # Some proxies append to the line of the client, others add a line.
    return ",".join(headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()[:64] or str(direct)


def client_network(address: str) -> str:
    """Return an address, or the network of 64 bits of an IPv6 address, which a single client has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
