"""What a checkpoint store implements: four verbs over files named by (storage id, relative path).

det owns everything above them: the manifest, checksums, the order of writes, the record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path


class StorageManager(ABC):
    """Stores the files of checkpoints. Constructed with the validated config block.

    Paths are relative, with ``/`` between parts on every system; a path ending in ``/`` is an
    empty directory. Methods raise `det_core.errors.StorageError` for what a user can act on
    (permission denied, disk full, bucket missing) and may be called from several threads.
    """

    @abstractmethod
    def put(self, storage_id: str, path: str, source: Path) -> None:
        """Store the file ``source`` under ``path``, replacing what is there.

        The stored file appears whole or not at all, and survives a crash once this returns.
        ``source`` is ignored when ``path`` ends in ``/``.
        """

    @abstractmethod
    def get(self, storage_id: str, path: str, target: Path) -> None:
        """Write the stored file to ``target``, whose parent directory exists.

        Raises:
            FileNotFoundError: nothing is stored under ``path``.
        """

    @abstractmethod
    def list(self, storage_id: str) -> dict[str, int]:
        """Map every stored path to its stored size in bytes (0 for directories); empty if unknown."""

    @abstractmethod
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        """Remove the paths, in the order given; those that do not exist are not an error."""

    def local_path(self, storage_id: str) -> Path | None:
        """The directory of this checkpoint if users may read and write it in place, else None."""
        return None
