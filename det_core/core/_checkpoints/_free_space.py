"""Free space of the disk for the next checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from det_core.disk_errors import free_bytes
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager

_log = logging.getLogger("det.core")


def describe_lack_of_space(storage: StorageManager, storage_id: str, needed: int) -> str:
    """Return what to do about a disk with less free space than a checkpoint needs, or "" if there is enough.

    Args:
        storage: the storage of the checkpoint. One that is not a directory has enough.
        storage_id: id of the checkpoint.
        needed: size of the checkpoint in bytes.

    Raises:
        OSError, StorageError: the free space cannot be read.
    """
    directory = storage.local_path(storage_id)
    if directory is None or not needed:
        return ""
    free = free_bytes(directory)
    if free >= needed:
        return ""
    return (
        f"{directory.parent} has {free // 10**6} MB free, but the checkpoint needs about {-(-needed // 10**6)} MB; "
        "free space, remove checkpoints with `det checkpoint gc`, or lower checkpoint_storage.save_*"
    )


class FreeSpaceCheck:
    """Check of the free space in a storage that is a directory. It warns once, and never raises.

    Args:
        storage: the storage of the checkpoints.
    """

    def __init__(self, storage: StorageManager) -> None:
        self._storage = storage
        self._last: int | None = None
        self._warned = False

    def note_size(self, size: int) -> None:
        """Note the size of a checkpoint in bytes, which is the estimate for the next one."""
        self._last = size

    def check(self, storage_id: str, files: Iterable[Path] | None = None) -> None:
        """Warn if the disk has less free space than the checkpoint needs.

        Args:
            storage_id: id of the checkpoint.
            files: files that will be stored, or None if they do not exist yet.
        """
        if self._warned:
            return
        try:
            needed = self._last if files is None else sum(path.stat().st_size for path in files if path.is_file())
            lack = describe_lack_of_space(self._storage, storage_id, needed or 0)
        except (OSError, StorageError):  # saving the checkpoint will report it
            return
        if lack:
            self._warned = True
            _log.warning("%s", lack)
