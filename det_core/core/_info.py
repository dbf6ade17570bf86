"""What a process learns about the task it belongs to: JSON files that the launcher wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from det_core.errors import LaunchError

INFO_DIR = "DET_INFO_DIR"
"""Environment variable: where the files are, if not in the documented place."""
DEFAULT_INFO_DIR = "/run/determined/info"


@dataclass(frozen=True)
class TrialInfo:
    """The trial that this process belongs to."""

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: dict[str, Any]
    config: dict[str, Any] = field(repr=False)
    """The complete experiment config."""
    steps_completed: int
    """Of the checkpoint that this run starts from; 0 without one."""
    trial_run_id: int
    debug: bool = False
    inter_node_network_interface: str | None = None


@dataclass(frozen=True)
class RendezvousInfo:
    """Where the nodes of this task are."""

    container_addrs: list[str]
    container_rank: int
    container_slot_counts: list[int]


@dataclass(frozen=True)
class ClusterInfo:
    """The task that this process belongs to."""

    master_url: str
    """What `det_core.tracking.open_store` takes."""
    cluster_id: str
    agent_id: str
    slot_ids: list[int]
    task_id: str
    allocation_id: str
    session_token: str = field(repr=False)
    task_type: str = "TRIAL"
    latest_checkpoint: str | None = None
    trial: TrialInfo | None = None
    rendezvous: RendezvousInfo | None = None

    @property
    def container_addrs(self) -> list[str]:
        return self.rendezvous.container_addrs if self.rendezvous else ["127.0.0.1"]

    @property
    def container_rank(self) -> int:
        return self.rendezvous.container_rank if self.rendezvous else 0


@cache
def get_cluster_info() -> ClusterInfo | None:
    """The task that this process runs in, or None outside of any. Read once.

    Raises:
        LaunchError: the files are there but damaged.
    """
    directory = Path(os.environ.get(INFO_DIR) or DEFAULT_INFO_DIR)
    cluster = _read(directory / "cluster.json")
    if cluster is None:
        return None
    trial, rendezvous = _read(directory / "trial.json"), _read(directory / "rendezvous.json")
    try:
        return ClusterInfo(
            **cluster,
            trial=TrialInfo(**trial) if trial else None,
            rendezvous=RendezvousInfo(**rendezvous) if rendezvous else None,
        )
    except TypeError as error:
        raise LaunchError(f"the cluster info in {directory} is damaged: {error}") from error


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LaunchError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise LaunchError(f"{path} is damaged: expected a JSON object")
    return content
