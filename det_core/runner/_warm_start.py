"""Checkpoint of an earlier trial that the trials of an experiment start from."""

from __future__ import annotations

from det_core.config import SearcherConfig
from det_core.errors import InvalidExperimentException, RecordNotFound
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore

_LISTS = "`det checkpoint list` shows the existing ones"


def find_source_checkpoint(store: TrackingStore, searcher: SearcherConfig) -> CheckpointRecord | None:
    """Return the checkpoint that the trials of an experiment start from.

    Args:
        store: the tracking store.
        searcher: the searcher section of the config.

    Returns:
        The checkpoint ``source_checkpoint_uuid``, the latest one of ``source_trial_id``, or None without either key.

    Raises:
        InvalidExperimentException: the checkpoint does not exist or cannot be restored, or both keys are set.
    """
    trial_id, uuid = searcher.source_trial_id, searcher.source_checkpoint_uuid
    if trial_id is not None and uuid is not None:
        raise InvalidExperimentException(
            "searcher has both source_trial_id and source_checkpoint_uuid; remove one of them"
        )
    try:
        if uuid is not None:
            return _complete(store.checkpoint(uuid))
        return None if trial_id is None else _latest(store, trial_id)
    except RecordNotFound as error:
        key = "source_trial_id" if uuid is None else "source_checkpoint_uuid"
        raise InvalidExperimentException(f"searcher.{key}: {error}; {_LISTS}") from error


def check_source_stored(source: CheckpointRecord, storage: StorageManager) -> None:
    """Raise InvalidExperimentException if the experiment's own storage does not hold the checkpoint."""
    if not storage.list(source.uuid):
        raise InvalidExperimentException(
            f"the source checkpoint {source.uuid} of trial {source.trial_id} is not in this experiment's "
            f"checkpoint_storage; use the storage of that trial, which has type {source.storage.get('type')!r}; "
            f"`det checkpoint describe {source.uuid}` shows it"
        )


def _complete(checkpoint: CheckpointRecord) -> CheckpointRecord:
    if checkpoint.state is not CheckpointState.COMPLETED:
        raise InvalidExperimentException(
            f"searcher.source_checkpoint_uuid: checkpoint {checkpoint.uuid} is {checkpoint.state.value}, but trials "
            f"can only start from one that is {CheckpointState.COMPLETED.value}; {_LISTS}"
        )
    return checkpoint


def _latest(store: TrackingStore, trial_id: int) -> CheckpointRecord:
    found = store.checkpoints(trial_id=trial_id, states=(CheckpointState.COMPLETED, CheckpointState.ERROR))
    if not found:
        raise InvalidExperimentException(f"searcher.source_trial_id: trial {trial_id} has no checkpoint; {_LISTS}")
    if found[-1].state is CheckpointState.ERROR:
        raise InvalidExperimentException(
            f"searcher.source_trial_id: the latest checkpoint of trial {trial_id}, {found[-1].uuid}, is damaged "
            f"({found[-1].error}); choose another one with source_checkpoint_uuid; {_LISTS}"
        )
    return found[-1]
