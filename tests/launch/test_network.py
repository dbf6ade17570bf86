"""Addresses at which the workers of a node listen."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from det_core.errors import LaunchError
from det_core.interfaces.backend import NodePlacement
from det_core.launch import network
from det_core.launch.network import find_adjacent_free_ports

OUTSIDE = "10.213.79.1"


def place(*hosts: str, node: int = 0) -> NodePlacement:
    return NodePlacement(hosts=hosts, node=node, slots=1, port=2345, directory=Path())


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets to other hosts leave from an address of this machine that is not loopback."""
    source = network._source_towards
    monkeypatch.setattr(network, "_source_towards", lambda host: source(host) if host[:4] == "127." else OUTSIDE)
    monkeypatch.setattr(network, "_is_ours", lambda address: address.startswith("127.") or address == OUTSIDE)


def test_the_only_node_listens_on_loopback() -> None:
    assert network.listening_address(place("10.0.0.1")) == "127.0.0.1"


@pytest.mark.parametrize("node", [0, 1])
def test_a_node_listens_at_the_address_that_the_hosts_name(node: int) -> None:
    hosts = ("127.0.0.3", "127.0.0.2")
    assert network.listening_address(place(*hosts, node=node)) == hosts[node]


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("name", ["127.0.1.1", socket.gethostname(), "localhost", "no.such.host.invalid", "10.0.0.1"])
def test_a_name_that_means_another_address_here_is_not_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_is_ours", lambda address: address.startswith("127."))
    assert network.listening_address(place(name, "10.213.79.2")) == OUTSIDE


@pytest.mark.usefixtures("route")
def test_the_named_address_is_preferred_to_that_of_the_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_is_ours", lambda address: True)
    assert network.listening_address(place("10.213.79.5", "10.213.79.2")) == "10.213.79.5"


def test_a_host_without_a_route_is_named() -> None:
    with pytest.raises(LaunchError, match="cannot reach the host no.such.host.invalid"):
        network.listening_address(place("no.such.host.invalid", "127.0.0.1", node=1))


def test_variables_name_the_interface_that_has_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOSEN", "ib0")
    monkeypatch.delenv("FREE", raising=False)
    assert network.interface_variables(["CHOSEN", "FREE"], "127.0.1.1") == {"CHOSEN": "ib0", "FREE": "lo"}
    with pytest.raises(LaunchError, match="no network interface has the address 192.0.2.7; set FREE to the name"):
        network.interface_variables(["FREE"], "192.0.2.7")


def test_a_node_that_can_open_no_socket_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not try one port after the other."""
    ports = iter([20_000] * 3)
    monkeypatch.setattr("random.randrange", lambda *_: next(ports))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            find_adjacent_free_ports()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
