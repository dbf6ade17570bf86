"""Task of a process: its trial, and the open stores of its records and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from det_core.core._cluster_info import ClusterInfo, TrialInfo
from det_core.core._distributed import DistributedContext, single_process
from det_core.core._experiment_settings import ExperimentSettings, parse_settings, recorded_settings
from det_core.core._storage_block import make_storage_block, open_storage_block
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._open import AGENT_SOCKET, AGENT_URL, open_existing_store

if TYPE_CHECKING:
    from det_core.tracking._lease import Lease
    from det_core.tracking.remote import Caller

GivenStorage: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | None"
"""Value of ``checkpoint_storage`` in a call of `det_core.core.init`."""


@dataclass(frozen=True)
class Task:
    """What `det_core.core.init` has joined."""

    settings: ExperimentSettings
    """Config of the experiment."""
    storage_manager: StorageManager
    """Open storage of the checkpoints."""
    distributed: DistributedContext
    """Rank of this worker and connection to the others."""
    store: TrackingStore
    """Open tracking store."""
    trial: TrialInfo
    """The trial."""
    cluster_id: str
    """Id of the tracking store."""
    latest_checkpoint: str | None
    """Storage id of the checkpoint to continue from, or None for a start at the beginning."""
    lease: Lease | None = None
    """Hold of a script's chief on its experiment. None on other workers and under a runner."""
    poll_requests: Callable[[], str | None] | None = None
    """Function that a script polls for requests to stop. None under a runner, which sends them."""

    @property
    def is_managed(self) -> bool:
        """Whether a runner has started this process."""
        return self.poll_requests is None


def join_run(
    info: ClusterInfo, trial: TrialInfo, distributed: DistributedContext | None, checkpoint_storage: GivenStorage
) -> Task:
    """Join the run for which a runner has started this process.

    Args:
        info: task of this process.
        trial: its trial.
        distributed: rank of this worker and connection to the others. None = there is only one worker.
        checkpoint_storage: as for `det_core.core.init`.

    Raises:
        ValueError: the task has several slots, and ``distributed`` is missing.
    """
    settings = _with_storage(recorded_settings(trial.config), checkpoint_storage)
    storage_manager = open_storage_block(settings.dumped["checkpoint_storage"])
    distributed = distributed or _only_worker(settings)
    store = _open_run_store(info, trial)
    return Task(settings, storage_manager, distributed, store, trial, info.cluster_id, info.latest_checkpoint)


def start_script(
    distributed: DistributedContext | None,
    checkpoint_storage: GivenStorage,
    config: Mapping[str, Any] | None,
    resume: int | None,
) -> Task:
    """Record this process as a task of its own.

    Args:
        distributed: rank of this worker and connection to the others. None = there is only one worker.
        checkpoint_storage, config, resume: as for `det_core.core.init`.
    """
    from det_core.core import _unmanaged_experiment as scripts  # workers do not need it

    workers = distributed or single_process()
    resumed = scripts.find_resumed_experiment(resume, workers)
    checkpoint_storage = None if resumed else checkpoint_storage
    settings = _with_storage(
        scripts.make_settings(resumed, config, checkpoint_storage, workers.size), checkpoint_storage
    )
    storage_manager = open_storage_block(settings.dumped["checkpoint_storage"])
    distributed = distributed or _only_worker(settings)
    script = scripts.start_unmanaged_experiment(settings, distributed, storage_manager, resumed)
    poll = scripts.make_request_poll(script.store, script.trial)
    return Task(settings, storage_manager, distributed, *script, poll_requests=poll)


def _with_storage(settings: ExperimentSettings, checkpoint_storage: GivenStorage) -> ExperimentSettings:
    """Return the settings with a storage, which has precedence over that of the config."""
    if checkpoint_storage is None and settings.dumped["checkpoint_storage"] is not None:
        return settings
    return parse_settings({**settings.dumped, "checkpoint_storage": make_storage_block(checkpoint_storage)})


def _only_worker(settings: ExperimentSettings) -> DistributedContext:
    slots = settings.dumped["resources"]["slots_per_trial"]
    if slots > 1:
        raise ValueError(
            f"resources.slots_per_trial is {slots}, but core.init() got no distributed=; pass for example "
            "core.DistributedContext.from_torch_distributed() if torchrun starts the workers"
        )
    return single_process()


def _open_run_store(info: ClusterInfo, trial: TrialInfo) -> TrackingStore:
    """Open the tracking store for the reports of a run, which its runner writes as long as it lives."""
    path, url = os.environ.get(AGENT_SOCKET), info.master_url
    if not path:
        return open_store(url)
    from det_core.tracking.remote import open_agent_store  # scripts by themselves do not need them
    from det_core.tracking.remote._remote_store import OwnCalls

    own = None if url == AGENT_URL else OwnCalls(partial(_open_for_run, info, trial))
    return open_agent_store(path, url=url, own=own)


def _open_for_run(info: ClusterInfo, trial: TrialInfo) -> tuple[TrackingStore, Caller]:
    """Open the tracking store in place of a runner that is gone, with the rights of the run."""
    from det_core.tracking.remote import Caller, RunAccess

    store = open_existing_store(info.master_url)
    run = RunAccess(trial.experiment_id, trial.trial_id, trial.trial_run_id, info.latest_checkpoint)
    return store, Caller(user=store.experiment(trial.experiment_id).owner, run=run)
