"""The local launcher: one node, this machine, its agent in the runner's own process."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import replace
from pathlib import Path

from det_core.config import Block, Positive
from det_core.errors import LaunchError
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch._agent import Agent
from det_core.tracking import home

_PATIENCE = 15.0
"""Seconds to wait for the orphans of a killed runner; they end by themselves within 10."""


class LocalConfig(Block):
    slots: Positive = 1
    """How many workers this machine can take where it has no GPU."""


class LocalLauncher(Launcher):
    """Starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._slots = gpus() or config.slots

    def start(self, request: LaunchRequest) -> Allocation:
        if request.slots > self._slots:
            more = "" if gpus() else ", or set launcher: {type: local, slots: N}"
            raise LaunchError(
                f"the trial needs {request.slots} slots and this machine has {self._slots}; "
                f"lower resources.slots_per_trial{more}"
            )
        lock = _lock(home() / "locks" / f"{request.name}.lock")
        try:
            return Agent(_described(request), lock=lock)
        finally:
            os.close(lock)  # the processes have inherited it


def _described(request: LaunchRequest) -> LaunchRequest:
    """The request with what only the launcher knows."""
    cluster = {**request.info["cluster.json"], "slot_ids": list(range(request.slots))}
    host = "127.0.0.1"
    rendezvous = {"container_addrs": [host], "container_rank": 0, "container_slot_counts": [request.slots]}
    return replace(
        request,
        info={**request.info, "cluster.json": cluster, "rendezvous.json": rendezvous},
        env={**request.env, "DET_CHIEF_IP": host},
    )


def gpus() -> int:
    """How many NVIDIA GPUs this machine has, without asking a framework."""
    return len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()])


def _lock(path: Path) -> int:
    """Lock a file until every process that inherits the descriptor is gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise LaunchError(
                    f"processes of an earlier run of {path.stem} are still alive after {_PATIENCE:.0f} s; "
                    f"find them with: fuser -v {path}"
                ) from None
            time.sleep(0.05)
        else:
            return descriptor
