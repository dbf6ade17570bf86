"""Commands and settings for workers, without starting any."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from det_horovod import _backend
from det_horovod._backend import Horovod
from det_horovod._lifecycle import horovod_environment

from det_core.config import NoOptions, parse_config
from det_core.errors import LaunchError
from det_core.interfaces.backend import NodePlacement, WorkerRanks

WORKER = ["python3", "train.py"]
RANKS = {
    "HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2",
}  # fmt: skip
CONFIG = {"entrypoint": "m:T", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodePlacement:
    """The second of two nodes, on a machine with Horovod installed."""
    monkeypatch.setattr(_backend, "find_spec", lambda name: name)
    for name in ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    return NodePlacement(hosts=["127.0.0.1", "127.0.0.2"], node=1, slots=3, port=2345, directory=tmp_path)


@pytest.mark.integration
def test_ranks_come_from_the_launchers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RANKS.items():
        monkeypatch.setenv(name, value)
    expected = WorkerRanks(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    assert Horovod(NoOptions()).ranks() == expected
    monkeypatch.setenv("HOROVOD_CROSS_SIZE", "two")
    with pytest.raises(LaunchError, match=r"HOROVOD_CROSS_SIZE.*python -m det_core.launch horovod"):
        Horovod(NoOptions()).ranks()


def test_all_nodes_use_the_rendezvous_of_the_first(place: NodePlacement) -> None:
    start = Horovod(NoOptions()).start(place, WORKER)
    assert list(start.argv) == [sys.executable, "-m", "det_horovod._launcher", *WORKER]
    expected = {"RENDEZVOUS_ADDR": "127.0.0.1", "RENDEZVOUS_PORT": "2345"}
    assert {f"HOROVOD_GLOO_{name}": value for name, value in expected.items()}.items() <= start.env.items()
    assert start.env["HOROVOD_SIZE"] == "6"
    first = Horovod(NoOptions()).start(replace(place, node=0), WORKER)
    assert {name for name in start.env if start.env[name] != first.env[name]} == {"HOROVOD_CROSS_RANK"}


def test_one_node_listens_only_on_loopback(place: NodePlacement) -> None:
    start = Horovod(NoOptions()).start(replace(place, hosts=["10.0.0.1"], node=0), WORKER)
    assert (start.env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], start.env["HOROVOD_GLOO_IFACE"]) == ("127.0.0.1", "lo")


def test_variables_of_the_user_choose_the_interface(place: NodePlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "ib0")
    start = Horovod(NoOptions()).start(place, WORKER)
    assert (start.env["HOROVOD_GLOO_IFACE"], start.env["NCCL_SOCKET_IFNAME"]) == ("ib0", "lo")


def test_an_unreachable_host_is_named(place: NodePlacement) -> None:
    with pytest.raises(LaunchError, match="cannot reach the host no.such.host.invalid"):
        Horovod(NoOptions()).start(replace(place, hosts=["no.such.host.invalid", "127.0.0.1"]), WORKER)


def test_without_horovod_the_error_says_how_to_build_it(place: NodePlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match="python -m det_horovod.build"):
        Horovod(NoOptions()).start(place, WORKER)


@pytest.mark.parametrize(
    ("optimizations", "timeout", "expected"),
    [
        ({}, None, {"FUSION_THRESHOLD": 64 << 20, "CYCLE_TIME": 1, "AUTOTUNE": 0}),
        ({"tensor_fusion_threshold": 0, "tensor_fusion_cycle_time": 5}, None, {"FUSION_THRESHOLD": 0, "CYCLE_TIME": 5}),
        ({"auto_tune_tensor_fusion": True}, None, {"AUTOTUNE": 1}),
        ({}, 2.5, {"GLOO_TIMEOUT_SECONDS": 3}),
        ({}, None, {"GLOO_TIMEOUT_SECONDS": 365 * 86400}),
    ],
)
def test_the_config_tunes_horovod(optimizations: Any, timeout: float | None, expected: dict[str, int]) -> None:
    config = parse_config({**CONFIG, "optimizations": optimizations}).dump()
    variables = horovod_environment(config["optimizations"], timeout)
    assert {f"HOROVOD_{name}": str(value) for name, value in expected.items()}.items() <= variables.items()
