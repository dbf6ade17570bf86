"""Downloads of recorded checkpoints into directories."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from det_core import storage
from det_core.core import open_storage_block
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord, CheckpointState


def download_checkpoint(
    checkpoint: CheckpointRecord, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Copy a checkpoint into a new or empty directory and verify it. The target appears whole or not at all.

    ``metadata.json`` in the target contains the present metadata from the tracking store.

    Args:
        checkpoint: checkpoint to copy.
        target: new or empty directory.
        progress: called from any thread with the number of bytes just copied.

    Raises:
        DetError: the checkpoint is not complete, or the target is in use.
    """
    if checkpoint.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
        why = f" ({checkpoint.error})" if checkpoint.error else ""
        raise DetError(
            f"checkpoint {checkpoint.uuid} is {checkpoint.state.value}{why}; only COMPLETED checkpoints and the "
            "remaining files of PARTIALLY_DELETED ones can be downloaded"
        )
    with atomic_directory(target) as files:
        storage.restore_checkpoint(open_storage_block(checkpoint.storage), checkpoint.uuid, files, progress=progress)
        storage.sign_copy(files, checkpoint.uuid, checkpoint.metadata)


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a path for a new directory, and rename it to ``target`` if the block succeeds.

    Raises:
        DetError: the target is in use.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DetError(f"{target} exists and is not an empty directory; remove it, or name another directory")
    target = target.absolute()
    beside = next(parent for parent in target.parents if parent.is_dir())
    with tempfile.TemporaryDirectory(prefix=".det-download-", dir=beside) as scratch:
        files = Path(scratch, "files")
        yield files
        target.parent.mkdir(parents=True, exist_ok=True)
        files.rename(target)
