"""Removes recorded checkpoints, from the store of files and from the record."""

from __future__ import annotations

from collections.abc import Sequence

from det_core import events, plugins, storage
from det_core.core._storage import open_block
from det_core.interfaces.tracking import Checkpoint, CheckpointState, TrackingStore


def remove(store: TrackingStore, checkpoint: Checkpoint, globs: Sequence[str] = ()) -> dict[str, int]:
    """Remove the files of a checkpoint that match, or all of them; what is left, as `det_core.storage.delete` says.

    The row comes first: what it calls COMPLETED has all its files at any time.

    Raises:
        RecordInUse: it is a version of a model.
        StorageError: the storage refused.
    """
    partly = globs and checkpoint.state is not CheckpointState.DELETED
    manager = open_block(checkpoint.storage)
    store.delete_checkpoint(checkpoint.uuid, remaining=checkpoint.resources if partly else None)
    left = storage.delete(manager, checkpoint.uuid, globs if partly else storage.ALL)
    store.delete_checkpoint(checkpoint.uuid, remaining=left)
    if not left:
        plugins.emit(events.CheckpointDeleted(storage_id=checkpoint.uuid))
    return left
