"""Removal of recorded checkpoints from checkpoint storage and from the tracking store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from det_core import storage
from det_core.core._storage_block import open_storage_block
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.tracking import TrackingStore


def remove_checkpoint(
    store: TrackingStore,
    checkpoint: CheckpointRecord,
    globs: Sequence[str] = (),
    *,
    on_deleted: Callable[[CheckpointRecord], None],
) -> dict[str, int]:
    """Remove all files of a checkpoint, or only those that match, and update its row in the tracking store.

    The row changes before any file is removed, so a checkpoint in state COMPLETED always has all its files.

    Args:
        store: the tracking store.
        checkpoint: the checkpoint.
        globs: patterns as in `det_core.storage.delete_stored_files`. Empty = all files.
        on_deleted: function called if no files remain.

    Returns:
        Sizes in bytes of the remaining files, by path.

    Raises:
        RecordInUse: the checkpoint is a version of a registered model.
        StorageError: the storage failed.
    """
    partly = globs and checkpoint.state is not CheckpointState.DELETED
    manager = open_storage_block(checkpoint.storage)
    store.delete_checkpoint(checkpoint.uuid, remaining=checkpoint.resources if partly else None)
    left = storage.delete_stored_files(manager, checkpoint.uuid, globs if partly else storage.ALL_FILES)
    store.delete_checkpoint(checkpoint.uuid, remaining=left)
    if not left:
        on_deleted(checkpoint)
    return left
