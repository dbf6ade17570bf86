"""Choice of the newest checkpoint of a trial that can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from det_core.errors import StorageError
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore

MISSING_FILES = "its files are no longer in the storage"
"""Reason for the state ERROR of a checkpoint without files."""


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


def find_newest_intact(
    store: TrackingStore, storage: StorageManager, known: Sequence[CheckpointRecord]
) -> StartingPoint:
    """Find the newest intact checkpoint, and mark newer ones that have lost their files.

    None is marked if no checkpoint has files, because the storage itself may be missing, such as an unmounted disk.

    Args:
        store: the tracking store.
        storage: the storage of the checkpoints.
        known: checkpoints of one trial in any state, oldest first.
    """
    intact: CheckpointRecord | None = None
    passed: list[str] = []
    for one in reversed(known):
        if one.state is CheckpointState.COMPLETED and is_stored(storage, one):
            intact = one
            break
        passed.append(one.uuid)
    if intact:
        for uuid in passed:
            store.fail_checkpoint(uuid, MISSING_FILES)  # changes completed checkpoints only
    damaged = [one for one in map(store.checkpoint, passed) if one.state is CheckpointState.ERROR]
    return StartingPoint(intact, damaged)


def lost_checkpoints(known: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """Return the checkpoints that were complete once, of which none can be restored.

    Args:
        known: checkpoints as for `find_newest_intact`, which has found none.
    """
    return [one for one in known if one.state is CheckpointState.COMPLETED or one.steps_completed is not None]


def is_stored(storage: StorageManager, checkpoint: CheckpointRecord) -> bool:
    """Return whether the storage has files of a checkpoint, or does not respond."""
    try:
        return bool(storage.list(checkpoint.uuid))
    except StorageError:  # the storage does not respond; if that persists, the worker reports it
        return True
