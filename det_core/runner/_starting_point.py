"""Choice of the checkpoint that a run of a trial starts from."""

from __future__ import annotations

from collections.abc import Sequence

from det_core.config import SearcherConfig
from det_core.core.intact_checkpoints import (
    MISSING_FILES,
    StartingPoint,
    find_newest_intact,
    is_stored,
    lost_checkpoints,
)
from det_core.errors import InvalidExperimentException, NoCheckpoint
from det_core.interfaces.records import CheckpointRecord, CheckpointState, State, TrialRecord
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._warm_start import check_source_stored, find_source_checkpoint


def choose_starting_point(
    store: TrackingStore, storage: StorageManager, trial: TrialRecord, searcher: SearcherConfig, *, from_beginning: bool
) -> StartingPoint:
    """Choose where the next run of a trial starts.

    Args:
        store: the tracking store.
        storage: the storage of the experiment's checkpoints.
        trial: the trial to start.
        searcher: the searcher section of the config, which may name a checkpoint of another trial.
        from_beginning: whether a trial that has lost all its checkpoints starts from the beginning.

    Raises:
        NoCheckpoint: the trial has lost all its checkpoints, and ``from_beginning`` is False.
        InvalidExperimentException: the trial starts from another trial's checkpoint, which cannot be restored.
    """
    own = store.checkpoints(trial_id=trial.id, states=list(CheckpointState))
    found = find_newest_intact(store, storage, own)
    if found.checkpoint:
        return found
    lost = lost_checkpoints(own)
    if lost and not from_beginning:
        raise NoCheckpoint(_all_lost(trial, lost))
    for one in lost:
        store.fail_checkpoint(one.uuid, MISSING_FILES)
    return _source(store, storage, trial, searcher)


def _source(
    store: TrackingStore, storage: StorageManager, trial: TrialRecord, searcher: SearcherConfig
) -> StartingPoint:
    """Choose where a trial without checkpoints of its own starts."""
    if trial.source_checkpoint is None:
        source = find_source_checkpoint(store, searcher)
        if source and not is_stored(storage, source):
            check_source_stored(source, storage)
        return StartingPoint(source)
    wanted = store.checkpoint(trial.source_checkpoint)
    of_origin = store.checkpoints(trial_id=wanted.trial_id, states=list(CheckpointState))
    until_then = of_origin[: [one.uuid for one in of_origin].index(wanted.uuid) + 1]
    found = find_newest_intact(store, storage, until_then)
    if found.checkpoint is None:
        raise InvalidExperimentException(
            f"the search starts trial {trial.id} from checkpoint {wanted.uuid} of trial {wanted.trial_id}, but neither "
            "this one nor an older one of that trial can be restored"
        )
    return found


def _all_lost(trial: TrialRecord, lost: Sequence[CheckpointRecord]) -> str:
    newest = lost[-1]
    reasons = {
        CheckpointState.COMPLETED: "its files are not in the storage (is the disk mounted?)",
        CheckpointState.ERROR: newest.error,
    }
    resume = f"det experiment resume {trial.experiment_id}"
    next_step = f"{resume}; or train from the beginning: {resume} --from-beginning"
    if trial.state is State.COMPLETED:  # only an extension starts it again
        next_step = "repeat this command; or start a new experiment, with checkpoint_storage.save_trial_latest: 1"
    return (
        f"trial {trial.id} has trained {newest.steps_completed} batches, but none of its checkpoints can be restored; "
        f"the newest is {newest.uuid}: {reasons.get(newest.state, 'it was deleted')}. "
        f"Restore its files, then: {next_step}"
    )
