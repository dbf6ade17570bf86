"""What a process learns about the task it belongs to: JSON files that the launcher wrote."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from det_core.errors import LaunchError
from det_core.tracking.secret_files import fill

_T = TypeVar("_T")

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
    """Where the nodes of this task are, in the order of their ranks."""

    container_addrs: list[str]
    container_rank: int
    """Index of this node, >= 0."""
    container_slot_counts: list[int]


@dataclass(frozen=True)
class ClusterInfo:
    """The task that this process belongs to."""

    master_url: str
    """What `det_core.tracking.open_store` takes."""
    cluster_id: str
    agent_id: str
    slot_ids: list[int]
    """The slots of this node that the task may use."""
    task_id: str
    allocation_id: str
    session_token: str = field(repr=False)
    task_type: str = "TRIAL"
    latest_checkpoint: str | None = None
    """The checkpoint to start from; None = start from the beginning."""
    trial: TrialInfo | None = None
    rendezvous: RendezvousInfo | None = None

    @property
    def container_addrs(self) -> list[str]:
        """The address of every node, in the order of their ranks."""
        return self.rendezvous.container_addrs if self.rendezvous else ["127.0.0.1"]

    @property
    def container_rank(self) -> int:
        """Index of this node in `container_addrs`."""
        return self.rendezvous.container_rank if self.rendezvous else 0

    @property
    def container_slot_counts(self) -> list[int]:
        """How many slots each node has, in the same order."""
        return self.rendezvous.container_slot_counts if self.rendezvous else [len(self.slot_ids)]

    @property
    def user_data(self) -> dict[str, Any]:
        """The config's ``data``, which is yours to fill."""
        return fill(dict(self.trial.config.get("data") or {})) if self.trial else {}


@cache
def get_cluster_info() -> ClusterInfo | None:
    """The task that this process runs in, or None outside of any. Read once.

    Raises:
        LaunchError: the files are damaged, or the directory that the launcher named has none.
    """
    named = os.environ.get(INFO_DIR)
    directory = Path(named or DEFAULT_INFO_DIR)
    cluster = _read(directory / "cluster.json", ClusterInfo)
    if cluster is None:
        if named:  # otherwise the task would train as if started by hand
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
    from pydantic import TypeAdapter, ValidationError  # scripts that run by themselves have no such file

    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        details = "; ".join(": ".join([*map(str, one["loc"]), one["msg"]]) for one in error.errors())
        raise LaunchError(f"{path} is damaged; expected a JSON object as the launcher wrote it: {details}") from error
