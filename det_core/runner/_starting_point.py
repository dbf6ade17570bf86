"""Choice of the checkpoint that a run of a trial starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from det_core.config import SearcherConfig
from det_core.errors import InvalidExperimentException, NoCheckpoint, StorageError
from det_core.interfaces.records import CheckpointRecord, CheckpointState, TrialRecord
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._warm_start import check_source_stored, find_source_checkpoint

_MISSING = "its files are no longer in the storage"


@dataclass(frozen=True)
class StartingPoint:
    """Start of a run at a checkpoint or at the beginning."""

    checkpoint: CheckpointRecord | None
    """Checkpoint to start from, or None for a start at the beginning."""
    damaged: Sequence[CheckpointRecord] = ()
    """Newer checkpoints that cannot be restored."""

    def __str__(self) -> str:
        latest = self.checkpoint
        return f"checkpoint {latest.uuid} after {latest.steps_completed} batches" if latest else "the beginning"

    def warnings(self) -> list[str]:
        """Return a line for each checkpoint that is skipped."""
        return [
            f"WARNING: checkpoint {one.uuid} after {one.steps_completed} batches is damaged ({one.error}); this run "
            f"starts from {self} instead, which does not count as a restart"
            for one in self.damaged
        ]


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
    found = _newest_intact(store, storage, own)
    if found.checkpoint:
        return found
    lost = [one for one in own if one.state is CheckpointState.COMPLETED or one.steps_completed is not None]
    if lost and not from_beginning:
        raise NoCheckpoint(_all_lost(trial, lost))
    for one in lost:
        store.fail_checkpoint(one.uuid, _MISSING)
    return _source(store, storage, trial, searcher)


def _newest_intact(store: TrackingStore, storage: StorageManager, known: Sequence[CheckpointRecord]) -> StartingPoint:
    """Find the newest intact checkpoint, and mark newer ones that have lost their files.

    None is marked if no checkpoint has files, because the storage itself may be missing, such as an unmounted disk.

    Args:
        known: checkpoints of one trial, oldest first.
    """
    intact: CheckpointRecord | None = None
    passed: list[str] = []
    for one in reversed(known):
        if one.state is CheckpointState.COMPLETED and _is_stored(storage, one):
            intact = one
            break
        passed.append(one.uuid)
    if intact:
        for uuid in passed:
            store.fail_checkpoint(uuid, _MISSING)  # changes completed checkpoints only
    damaged = [one for one in map(store.checkpoint, passed) if one.state is CheckpointState.ERROR]
    return StartingPoint(intact, damaged)


def _is_stored(storage: StorageManager, checkpoint: CheckpointRecord) -> bool:
    try:
        return bool(storage.list(checkpoint.uuid))
    except StorageError:  # the storage does not respond; if that persists, the worker reports it
        return True


def _source(
    store: TrackingStore, storage: StorageManager, trial: TrialRecord, searcher: SearcherConfig
) -> StartingPoint:
    """Choose where a trial without checkpoints of its own starts."""
    if trial.source_checkpoint is None:
        source = find_source_checkpoint(store, searcher)
        if source and not _is_stored(storage, source):
            check_source_stored(source, storage)
        return StartingPoint(source)
    wanted = store.checkpoint(trial.source_checkpoint)
    of_origin = store.checkpoints(trial_id=wanted.trial_id, states=list(CheckpointState))
    until_then = of_origin[: [one.uuid for one in of_origin].index(wanted.uuid) + 1]
    found = _newest_intact(store, storage, until_then)
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
    return (
        f"trial {trial.id} has trained {newest.steps_completed} batches, but none of its checkpoints can be restored; "
        f"the newest is {newest.uuid}: {reasons.get(newest.state, 'it was deleted')}. "
        f"Restore its files, then: {resume}; or train from the beginning: {resume} --from-beginning"
    )
