"""The stores that recorded checkpoints lie in."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_core.errors import DetError, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import Checkpoint, CheckpointState


def open_checkpoint_storage(checkpoint: Checkpoint) -> StorageManager:
    """The store that this checkpoint was written to. Raises as `open_block`."""
    return open_block(checkpoint.storage)


def open_block(recorded: Mapping[str, Any]) -> StorageManager:
    """The store of a recorded ``checkpoint_storage`` block.

    Raises:
        StorageError: its plugin does not take the recorded options any more.
        PluginError: its plugin is missing.
    """
    from pydantic import ValidationError

    from det_core.config import CheckpointStorageConfig
    from det_core.storage import open_storage

    try:
        block = CheckpointStorageConfig.model_validate(recorded)
    except ValidationError as error:
        reasons = "; ".join(problem["msg"] for problem in error.errors())
        raise StorageError(f"cannot open the recorded storage {dict(recorded)!r}: {reasons}") from error
    return open_storage(block.type, block.options)


def download(checkpoint: Checkpoint, target: Path) -> None:
    """Copy a checkpoint into a new or empty directory, verified; the target appears whole or not at all.

    Raises:
        DetError: the checkpoint is not complete, or the target is in use.
    """
    from det_core.storage import restore

    if checkpoint.state is not CheckpointState.COMPLETED:
        raise DetError(
            f"checkpoint {checkpoint.uuid} is {checkpoint.state.value}; only COMPLETED ones can be downloaded"
        )
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DetError(f"{target} exists and is not an empty directory; remove it, or name another with -o DIRECTORY")
    target = target.absolute()
    beside = next(parent for parent in target.parents if parent.is_dir())
    with tempfile.TemporaryDirectory(prefix=".det-download-", dir=beside) as scratch:
        files = Path(scratch, "files")
        restore(open_checkpoint_storage(checkpoint), checkpoint.uuid, files)
        target.parent.mkdir(parents=True, exist_ok=True)
        files.rename(target)
