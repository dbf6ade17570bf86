"""`init` and the context that it returns."""

from __future__ import annotations

import getpass
import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from det_core.config import ExperimentConfig, parse_config
from det_core.core._checkpoint import CheckpointContext
from det_core.core._distributed import DistributedContext, single_process
from det_core.core._info import ClusterInfo, TrialInfo, get_cluster_info
from det_core.core._preempt import PreemptContext
from det_core.core._train import EarlyExitReason, TrainContext
from det_core.errors import InvalidHP, StoreUnsuitable, TrackingError
from det_core.interfaces.tracking import State, TrackingStore
from det_core.storage import open_storage
from det_core.tracking import home, open_store

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger("det.core")


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts of the Core API. Made by `init`; use it in a ``with`` block.

    Leaving the block writes everything that was reported. `InvalidHP` leaving the block is
    recorded, and the process exits with 0.
    """

    info: ClusterInfo | None
    """None outside of a runner."""
    trial: TrialInfo
    config: ExperimentConfig
    distributed: DistributedContext
    preempt: PreemptContext
    train: TrainContext
    checkpoint: CheckpointContext
    _store: TrackingStore

    def __enter__(self) -> Self:
        self.preempt._start()
        self.train._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        invalid_hp = isinstance(error, InvalidHP)
        try:
            self.preempt._close()
            if invalid_hp:
                _log.error("these hyperparameters are invalid: %s", error)
                self.train.report_early_exit(EarlyExitReason.INVALID_HP)
            self.train._close()
        except BaseException as failure:
            error = failure
            raise
        finally:
            with closing(self._store):
                if self.info is None:
                    self._store.set_trial_state(self.trial.trial_id, _final_state(error))
                    self._store.set_experiment_state(self.trial.experiment_id, _final_state(error))
        if invalid_hp:
            sys.exit(0)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | Mapping[str, Any] | None = None,
) -> Context:
    """Join the task that this process runs in, or record it as a task of its own.

    Args:
        distributed: this worker among the others; None = the only one.
        checkpoint_storage: a directory, or a mapping as in the config's ``checkpoint_storage``. None =
            the config's under a runner, else a directory beside the embedded record.
    """
    info = get_cluster_info()
    managed = info.trial if info else None
    config = parse_config(managed.config if managed else _script_config())
    if checkpoint_storage is not None or config.checkpoint_storage is None:
        config = parse_config({**config.dump(), "checkpoint_storage": _storage_block(checkpoint_storage)})
    block = config.checkpoint_storage
    assert block is not None
    storage_manager = open_storage(block.type, block.options)
    store = open_store(info.master_url) if info and managed else _open_for_script()
    trial = managed or _record_script(store, config)
    run = store.run(trial.trial_id, trial.trial_run_id)
    train = TrainContext(
        store,
        run,
        trial.experiment_id,
        config.searcher.metric,
        smaller_is_better=config.searcher.smaller_is_better,
    )
    return Context(
        info=info if managed else None,
        trial=trial,
        config=config,
        distributed=distributed or single_process(),
        preempt=PreemptContext(run.trial_id, lambda: store.acknowledge_preemption(run.trial_id, run.run_id)),
        train=train,
        checkpoint=CheckpointContext(
            store,
            storage_manager,
            run,
            config.dump()["checkpoint_storage"],
            require_steps=managed is not None,
            flush=train.flush,
        ),
        _store=store,
    )


def _open_for_script() -> TrackingStore:
    """The embedded record; on a cluster whose home directories are on the network, one of this node."""
    try:
        return open_store()
    except StoreUnsuitable as error:
        directory = Path(tempfile.gettempdir(), f"det-{os.getuid()}")
        directory.mkdir(mode=0o700, exist_ok=True)
        if directory.is_symlink() or directory.stat().st_uid != os.getuid():
            raise TrackingError(f"{directory} is not yours; set DET_HOME to a local directory of yours") from error
        _log.warning("%s This script is recorded in %s instead.", error, directory)
        return open_store(f"sqlite:///{directory / 'det.db'}")


def default_storage() -> dict[str, Any]:
    """The ``checkpoint_storage`` of those who configure none: a directory beside the embedded record."""
    return {"type": "directory", "container_path": str(home() / "checkpoints")}


def _storage_block(given: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        return default_storage()
    if isinstance(given, Mapping):
        return given
    path = str(given).removeprefix("file://")
    if "://" in path:
        raise ValueError(f"checkpoint_storage {str(given)!r}: expected a directory, file:///path or a mapping")
    return {"type": "directory", "container_path": path}


def _script_config() -> dict[str, Any]:
    return {
        "name": Path(sys.argv[0]).name or "interactive",
        "entrypoint": sys.argv or [""],
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": 1},
    }


def _record_script(store: TrackingStore, config: ExperimentConfig) -> TrialInfo:
    """Give a script that runs by itself a place in the record."""
    seed = config.reproducibility.experiment_seed
    experiment = store.create_experiment(config=config.dump(), owner=getpass.getuser(), unmanaged=True)
    trial = store.create_trial(experiment.id, hparams={}, seed=seed)
    run = store.start_run(trial.id, allocation_id=str(uuid.uuid4()))
    store.set_experiment_state(experiment.id, State.ACTIVE)
    store.set_trial_state(trial.id, State.ACTIVE)
    return TrialInfo(
        trial_id=trial.id,
        experiment_id=experiment.id,
        trial_seed=seed,
        hparams={},
        config=config.dump(),
        steps_completed=0,
        trial_run_id=run.run_id,
    )


def _final_state(error: BaseException | None) -> State:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return State.COMPLETED
    return State.CANCELED if isinstance(error, KeyboardInterrupt) else State.ERROR
