"""Network addresses of clients."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

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
    """Return an address without a port, or the network of 64 bits of an IPv6 address, which a single client has."""
    for text in (address, address.rpartition(":")[0].strip("[]")):  # some proxies report the port, too
        with suppress(ValueError):
            return _name_network(ipaddress.ip_address(text))
    return address[:64]


def _name_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
