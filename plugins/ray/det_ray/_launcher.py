"""Launcher that starts trials on the nodes of a Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from det_cluster.engine_launch import EngineLaunch

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_ray._config import RayConfig
from det_ray._ray_job import RayJob

_LOOK_SECONDS = 60.0
"""Time limit of a look at the cluster."""
_LOOK_EVERY = 30.0
"""Minimum number of seconds between two looks at what is free, each of which connects to the cluster."""


class RayLauncher(Launcher):
    """Launcher with a placement group per trial and a node agent per node."""

    slots = None  # placement groups wait for their resources

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._found: Mapping[str, float] | None = config.resources
        self._free: Mapping[str, float] = {}
        self._look_at = 0.0

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if "GPU" in self._resources() else "cpu"

    def available_slots(self, request: LaunchRequest) -> int:
        """Return for how many slots the cluster has free resources, on whatever nodes they are."""
        with self._lock:
            if time.monotonic() >= self._look_at:
                self._free = self._look()["free"]
                self._look_at = time.monotonic() + _LOOK_EVERY
        return int(min(self._free.get(name, 0.0) // amount for name, amount in self._resources().items() if amount))

    def open(self, key: str, keep: Collection[str] = (), renew_lease: Callable[[], None] = lambda: None) -> None:
        """Remove the placement groups of earlier runners whose drivers do not end."""
        _call_driver("clean", self._config.address, f"{key}-")

    def start(self, request: LaunchRequest) -> Allocation:
        nodes = -(-request.slots // (self._config.slots_per_node or request.slots))
        if request.slots % nodes:
            raise LaunchError(
                f"the trial needs {request.slots} slots, which {nodes} nodes with up to {self._config.slots_per_node} "
                "slots cannot share equally; change resources.slots_per_trial or launcher.slots_per_node"
            )
        share = request.slots // nodes
        bundle = {name: amount * share for name, amount in self._resources().items()}
        return EngineLaunch(request, RayJob(self._config.address, nodes, bundle))

    def _resources(self) -> Mapping[str, float]:
        """Return the resources of a slot. The cluster is asked once if the config does not choose them."""
        with self._lock:
            if self._found is None:
                self._found = {"GPU": 1.0} if "GPU" in self._look()["all"] else {"CPU": 1.0}
            return self._found

    def _look(self) -> Mapping[str, Mapping[str, float]]:
        """Return the resources of the cluster, ``all`` of them and those that are ``free``."""
        found: Mapping[str, Mapping[str, float]] = json.loads(_call_driver("describe", self._config.address))
        return found


def _call_driver(*words: str) -> str:
    """Run a driver without a launch, and return its output.

    Args:
        words: arguments of `det_ray.driver`.

    Raises:
        LaunchDelayed: the cluster did not answer.
    """
    command = [sys.executable, "-m", "det_ray.driver", *words]
    try:
        ran = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=_LOOK_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise LaunchDelayed(f"the Ray cluster did not answer within {_LOOK_SECONDS:.0f} s") from None
    if ran.returncode:
        raise LaunchDelayed(ran.stderr.strip())
    return ran.stdout
