"""Information about the task of this process, read from JSON files that the launcher wrote."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from det_core.errors import LaunchError
from det_core.tracking.secret_files import resolve_secrets

_T = TypeVar("_T")

INFO_DIR = "DET_INFO_DIR"
"""Environment variable with the directory of the files, if it is not `DEFAULT_INFO_DIR`."""
DEFAULT_INFO_DIR = "/run/determined/info"


@dataclass(frozen=True)
class TrialInfo:
    """Trial that this process belongs to."""

    trial_id: int
    """Id of the trial in the tracking store."""
    experiment_id: int
    """Id of the trial's experiment in the tracking store."""
    trial_seed: int
    """Seed of everything random in the trial."""
    hparams: dict[str, Any]
    """Values of the hyperparameters by name."""
    config: dict[str, Any] = field(repr=False)
    """Complete experiment config."""
    steps_completed: int
    """Number of batches trained at the checkpoint that this run starts from. 0 without a checkpoint."""
    trial_run_id: int
    """Number of this run of the trial, from 1."""
    debug: bool = False
    """Accepted for compatibility. det does not set it."""
    inter_node_network_interface: str | None = None
    """Accepted for compatibility. det does not set it."""


@dataclass(frozen=True)
class RendezvousInfo:
    """Addresses and slots of the nodes of this task, in the order of their ranks."""

    container_addrs: list[str]
    """Address of each node."""
    container_rank: int
    """Index of this node, >= 0."""
    container_slot_counts: list[int]
    """Number of slots of each node."""
    port: int | None = None
    """Port that is free on the first node, as is the next one. None if there is only one node."""


@dataclass(frozen=True)
class ClusterInfo:
    """Task that this process belongs to."""

    master_url: str
    """URL of the tracking store, for `det_core.tracking.open_store`."""
    cluster_id: str
    """Id of the tracking store, which also is the storage id of its TensorBoard files."""
    agent_id: str
    """Name of the agent that started this process."""
    slot_ids: list[int]
    """Slots of this node that the task may use."""
    task_id: str
    """Id of the task, which stays the same when the task is restarted."""
    allocation_id: str
    """Id of this start of the task."""
    session_token: str = field(repr=False)
    """Token for requests to the master. Empty without a master."""
    task_type: str = "TRIAL"
    """Type of the task. det starts tasks of the type ``TRIAL`` only."""
    latest_checkpoint: str | None = None
    """Storage id of the checkpoint to start from. None = start from the beginning."""
    trial: TrialInfo | None = None
    """Trial of the task, or None if the task is not a trial."""
    rendezvous: RendezvousInfo | None = None
    """Nodes of the task. None = only this node."""

    @property
    def container_addrs(self) -> list[str]:
        """Return the address of every node, in the order of their ranks."""
        return self.rendezvous.container_addrs if self.rendezvous else ["127.0.0.1"]

    @property
    def container_rank(self) -> int:
        """Return the index of this node in `container_addrs`."""
        return self.rendezvous.container_rank if self.rendezvous else 0

    @property
    def container_slot_counts(self) -> list[int]:
        """Return the number of slots of each node, in the order of `container_addrs`."""
        return self.rendezvous.container_slot_counts if self.rendezvous else [len(self.slot_ids)]

    @property
    def user_data(self) -> dict[str, Any]:
        """Return ``data`` of the experiment config, which users may fill with any values."""
        data = self.trial.config.get("data") if self.trial else None
        return dict(resolve_secrets({"data": data})["data"]) if data else {}


@cache
def get_cluster_info() -> ClusterInfo | None:
    """Return the task that this process belongs to, or None outside a task. The files are read once.

    Raises:
        LaunchError: the files are damaged, or the directory that the launcher named contains none.
    """
    named = os.environ.get(INFO_DIR)
    directory = Path(named or DEFAULT_INFO_DIR)
    cluster = _read(directory / "cluster.json", ClusterInfo)
    if cluster is None:
        if named:  # without this error, the task would train as if a user had started it
            raise LaunchError(
                f"{INFO_DIR} is {named!r}, which has no cluster.json; perhaps a cleaner of temporary "
                f"files removed it. Start the task again, or unset {INFO_DIR} to run outside of a task"
            )
        return None
    trial = _read(directory / "trial.json", TrialInfo)
    return replace(cluster, trial=trial, rendezvous=_read(directory / "rendezvous.json", RendezvousInfo))


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    from det_core.tracking.remote._codecs import load_record  # not needed by scripts without a runner

    try:
        return load_record(kind, json.loads(text))
    except (TypeError, ValueError) as error:
        raise LaunchError(f"{path} is damaged; expected a JSON object as the launcher wrote it: {error}") from error
