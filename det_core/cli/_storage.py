"""The stores that recorded checkpoints lie in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from det_core.errors import DetError
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import Checkpoint, CheckpointState


def open_checkpoint_storage(checkpoint: Checkpoint) -> StorageManager:
    """The store that this checkpoint was written to. Raises as `det_core.core.open_block`."""
    from det_core.core import open_block

    return open_block(checkpoint.storage)


def download(checkpoint: Checkpoint, target: Path, progress: Callable[[int], None] | None = None) -> None:
    """Copy a checkpoint into a new or empty directory, verified; the target appears whole or not at all.

    Args:
        progress: called from any thread with the number of bytes that were just copied.

    Raises:
        DetError: the checkpoint is not complete, or the target is in use.
    """
    from det_core.storage import restore

    if checkpoint.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
        raise DetError(
            f"checkpoint {checkpoint.uuid} is {checkpoint.state.value}; only COMPLETED ones, and what is left of "
            "PARTIALLY_DELETED ones, can be downloaded"
        )
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DetError(f"{target} exists and is not an empty directory; remove it, or name another with -o DIRECTORY")
    target = target.absolute()
    beside = next(parent for parent in target.parents if parent.is_dir())
    with tempfile.TemporaryDirectory(prefix=".det-download-", dir=beside) as scratch:
        files = Path(scratch, "files")
        restore(open_checkpoint_storage(checkpoint), checkpoint.uuid, files, progress=progress)
        target.parent.mkdir(parents=True, exist_ok=True)
        files.rename(target)
