"""Address, interface and free ports at which the workers of a node listen."""

from __future__ import annotations

import errno
import ipaddress
import os
import random
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from det_core.errors import LaunchError
from det_core.interfaces.backend import NodePlacement

__all__ = ["interface_variables", "listening_address"]

LOOPBACK = "127.0.0.1"
"""Address at which the only node of a trial listens."""
_ANY_PORT = 9


def listening_address(place: NodePlacement) -> str:
    """Return the address at which this node listens for the others, or loopback if it is the only node.

    This is the node's own entry in ``place.hosts``. If that entry resolves to loopback on the node itself, as a host's
    own name does on Debian, it is the address from which the node reaches the others.

    Args:
        place: the nodes of the trial, and the index of this node.

    Raises:
        LaunchError: there is no route to the other nodes.
    """
    if len(place.hosts) == 1:
        return LOOPBACK
    source = _source_towards(place.hosts[0 if place.node else 1])
    for address in _addresses(place.hosts[place.node]):
        if _is_loopback(address) == _is_loopback(source) and _is_ours(address):
            return address
    return source


def interface_variables(names: Iterable[str], address: str) -> dict[str, str]:
    """Return environment variables that name the interface of ``address``. Variables that are set keep their values.

    Args:
        names: names of the variables.
        address: an address of this machine.

    Raises:
        LaunchError: no interface has the address.
    """
    return {name: os.environ.get(name) or _interface(address, name) for name in names}


@contextmanager
def reserve_free_ports(count: int) -> Iterator[list[int]]:
    """Reserve ``count`` free ports while the block runs."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        yield [one.getsockname()[1] for one in sockets]


def find_adjacent_free_ports() -> int:
    """Return a free port of 127.0.0.1 that is followed by another one, as nodes need that cannot search for one.

    It is below the ports that kernels give to outgoing connections, so that none of these takes it in the meantime.

    Raises:
        OSError: no socket can be opened.
    """
    while True:
        port = random.randrange(16_384, 32_766)  # noqa: S311
        try:
            with ExitStack() as held:
                for one in (port, port + 1):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", one))
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def _source_towards(host: str) -> str:
    """Return the source address of packets to ``host``. Nothing is sent."""
    try:
        family, _, _, _, target = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise LaunchError(
            f"cannot reach the host {host}: {error.strerror}; check its name in --hosts and the routes to it"
        ) from error


def _addresses(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []  # the name may be known to the other nodes only


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _interface(address: str, variable: str) -> str:
    wanted = LOOPBACK if _is_loopback(address) else address
    import psutil  # not needed by the runner

    for name, addresses in psutil.net_if_addrs().items():
        if wanted in [one.address for one in addresses]:
            return name
    raise LaunchError(
        f"no network interface has the address {address}; set {variable} to the name of the interface to use"
    )
