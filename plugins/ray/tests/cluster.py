"""Ray cluster for tests: real daemons of several nodes on this machine, in a network namespace that has only loopback.

with ray_cluster(nodes=2) as cluster:
    cluster.kill_node(1)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from ray.cluster_utils import Cluster

_CLONE_NEWNET = 0x40000000
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_OBJECT_STORE = 80 << 20
_SECONDS = 60.0
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # Ray's default of 15 starves its workers beside other suites
}

_REMOVE_GROUPS = """
import ray, sys
ray.init(address="auto", namespace="det", logging_level="ERROR")
for group in ray.util.placement_group_table().values():
    if group["state"] != "REMOVED":
        ray.util.remove_placement_group(ray.util.get_placement_group(group["name"]))
"""
"""Program that removes all placement groups, as somebody may do with the tools of Ray."""


class RunningCluster:
    """Running cluster, whose first node is the head node."""

    def __init__(self, directory: str, resources: Sequence[Mapping[str, float]], *, dashboard: bool) -> None:
        self._variables = {
            **_VARIABLES,
            "RAY_TMPDIR": directory,
            "TMPDIR": directory,
            "DET_HOME": f"{directory}/home",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # jobs call `det`
            "RAY_ADDRESS": "",
        }
        self._cluster = Cluster()
        self._dashboard = dashboard
        self.nodes: list[Any] = []
        for one in resources:
            self.add_node(one)
        self.address: str = self._cluster.address

    def add_node(self, resources: Mapping[str, float], **variables: str) -> None:
        """Start another node, the last one of `nodes`. It ends with the thread that starts it.

        Args:
            resources: resources of the node.
            variables: environment variables of its processes.
        """
        others = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
        # Ray would set a handler of SIGTERM, which only the main thread can do.
        with patch.dict(os.environ, {**self._variables, **variables}), patch("ray._private.utils.set_sigterm_handler"):
            node = self._cluster.add_node(
                num_cpus=resources.get("CPU", 0),
                num_gpus=resources.get("GPU", 0),
                resources=others,
                object_store_memory=_OBJECT_STORE,
                include_dashboard=self._dashboard,
                dashboard_agent_listen_port=0,  # any free one; without an agent, a dashboard takes no jobs
            )
        self.nodes.append(node)

    @property
    def dashboard(self) -> str:
        """URL of the dashboard."""
        return f"http://{self._cluster.head_node.webui_url}"

    def kill_node(self, index: int) -> None:
        """Kill the daemon of a node, and remove the node."""
        node = self.nodes.pop(index)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(raylet_of(node)).kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def remove_groups(self) -> None:
        """Remove all placement groups of launches."""
        subprocess.run([sys.executable, "-c", _REMOVE_GROUPS], check=True, timeout=_SECONDS)

    def drain_node(self, index: int) -> None:
        """Announce that a node is taken back, as an autoscaler does if the cloud needs it for others."""
        command = ["drain-node", f"--address={self.address}", f"--node-id={self.nodes[index].node_id}"]
        reason = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot", "--deadline-remaining-seconds=1"]
        program = [sys.executable, "-m", "ray.scripts.scripts"]
        ran = subprocess.run([*program, *command, *reason], capture_output=True, text=True, timeout=_SECONDS)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def kill_head(self) -> None:
        """Kill all processes of the head node at once."""
        self._cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    def stop(self) -> None:
        """End all nodes."""
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

    Ray listens on all addresses of the host, and looks up its name, for which no name server answers here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = {kind: os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts")}
    try:
        if libc.unshare(_CLONE_NEWNET | _CLONE_NEWUTS):
            raise OSError(ctypes.get_errno(), "cannot create a network namespace")
        socket.sethostname("localhost")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=_SECONDS)
        yield
    finally:
        for namespace in before.values():
            libc.setns(namespace, 0)
            os.close(namespace)


@contextlib.contextmanager
def hidden_directory(directory: Path) -> Iterator[None]:
    """Show an empty directory instead to this thread and its processes while the block runs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot create a mount namespace")
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, timeout=_SECONDS)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True, timeout=_SECONDS)
    yield


@contextlib.contextmanager
def ray_cluster(*resources: Mapping[str, float], dashboard: bool = False) -> Iterator[RunningCluster]:
    """Run a cluster while the block runs. Call it within `loopback_only`.

    Args:
        resources: resources of each node, starting with the head node.
        dashboard: whether the head node has a dashboard, which takes jobs.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        cluster = RunningCluster(name, resources, dashboard=dashboard)
        try:
            yield cluster
        finally:
            cluster.stop()
