"""Ray cluster for tests: real daemons of several nodes on this machine, in a network namespace that has only loopback.

with ray_cluster(nodes=2) as cluster:
    cluster.kill_node(1)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

_CLONE_NEWNET = 0x40000000
_OBJECT_STORE = 80 << 20
_SECONDS = 60.0
_FASTER = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_enable_metrics_collection": "0",
}


class RunningCluster:
    """Running cluster, whose first node is the head node."""

    def __init__(self, resources: Sequence[Mapping[str, float]]) -> None:
        head, *others = resources
        self._common = {"object_store_memory": _OBJECT_STORE}
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={**_node_args(head), **self._common, "include_dashboard": False},
        )
        self.address: str = self._cluster.address
        self.nodes: list[Any] = [self._cluster.head_node]
        for one in others:
            self.add_node(one)

    def add_node(self, resources: Mapping[str, float]) -> None:
        """Start another node, the last one of `nodes`."""
        self.nodes.append(self._cluster.add_node(**_node_args(resources), **self._common))

    def kill_node(self, index: int) -> None:
        """Kill the daemon of a node, and remove the node."""
        node = self.nodes.pop(index)
        psutil.Process(raylet_of(node)).kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()


def raylet_of(node: Any) -> int:
    """Return the process id of the daemon of a node."""
    return int(node.all_processes["raylet"][0].process.pid)


def missing() -> str | None:
    """Return what is missing for a cluster on this machine, or None."""
    if os.getuid() != 0:
        return "a network namespace needs root"
    return None if shutil.which("ip") else "no ip; to test, run as root: apt-get install iproute2"


def wait_for(condition: Callable[[], Any], what: str, seconds: float = _SECONDS) -> Any:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(0.05)
    return value


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Give this thread, its later threads and child processes a network that has only loopback while the block runs.

    Ray listens on all addresses of the host.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot create a network namespace")
        for words in ("link set lo up", "route add default dev lo"):  # Ray takes the address that has a route
            subprocess.run(["ip", *words.split()], check=True, timeout=_SECONDS)
        yield
    finally:
        libc.setns(before, _CLONE_NEWNET)
        os.close(before)


@contextlib.contextmanager
def ray_cluster(*resources: Mapping[str, float]) -> Iterator[RunningCluster]:
    """Run a cluster while the block runs. Call it within `loopback_only`.

    Args:
        resources: resources of each node, starting with the head node.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        before = dict(os.environ)
        os.environ.update(_FASTER, RAY_TMPDIR=name, TMPDIR=name, DET_HOME=str(directory / "home"))
        os.environ.pop("RAY_ADDRESS", None)
        try:
            cluster = RunningCluster(resources)
        finally:
            os.environ.clear()
            os.environ.update(before)
        try:
            yield cluster
        finally:
            cluster.stop()


def _node_args(resources: Mapping[str, float]) -> dict[str, Any]:
    others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
    return {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0), "resources": others}
