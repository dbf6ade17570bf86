"""Interface of checkpoint storage: four methods on files named by (storage id, relative path), and a few options.

det takes care of the rest: manifests, checksums, threads, the order of writes and the tracking store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


class StorageManager(ABC):
    """Storage for the files of checkpoints. Constructed with the validated config block.

    Paths are relative, with ``/`` as separator on every system. A path that ends in ``/`` is an empty directory.
    Methods are called from several threads and processes at once, on different paths. A store may use threads of its
    own for the parts of one large file.

    Raises:
        det_core.errors.StorageError: a failure that the user can fix, such as permission denied, disk full or bucket
            missing.
    """

    transfers: int = 4
    """Number of files that det puts or gets at once. Stores that mostly wait for a network need more."""

    @abstractmethod
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        """Store the file ``source`` under ``path``, replacing any earlier file.

        The stored file appears whole or not at all. ``source`` is ignored if ``path`` ends in ``/``.

        Args:
            storage_id: id of the checkpoint.
            path: path of the file in the checkpoint.
            source: local file.

        Returns:
            The CRC-32C of the stored data as 8 hexadecimal digits, or None if computing it would require a second read.
            det then reads ``source`` itself.
        """

    @abstractmethod
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        """Write the stored file to ``target``, whose parent directory exists.

        Args:
            storage_id: id of the checkpoint.
            path: path of the file in the checkpoint.
            target: local file to create or replace.

        Returns:
            The CRC-32C of the data as in `put`, or None. det then reads ``target`` itself.

        Raises:
            FileNotFoundError: nothing is stored under ``path``.
        """

    @abstractmethod
    def list(self, storage_id: str) -> dict[str, int]:
        """Return every stored path with its size in bytes (0 for directories). Empty for an unknown ``storage_id``."""

    @abstractmethod
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        """Delete the paths in the given order. Paths that do not exist are ignored.

        Args:
            storage_id: id of the checkpoint.
            paths: paths of files in the checkpoint.
        """

    def sync(self, storage_id: str, paths: Sequence[str]) -> None:  # most stores need nothing here
        """Return once these paths survive a crash of this host.

        Called on the host that put them, with at least one path, often with many at once. Stores whose `put` guarantees
        this need not override it.

        Args:
            storage_id: id of the checkpoint.
            paths: paths of files in the checkpoint.
        """

    def local_path(self, storage_id: str) -> Path | None:
        """Return the directory of this checkpoint if users may read and write it in place, else None."""
        return None

    def stored(self) -> dict[str, datetime]:
        """Return every storage id that has files, with the time of its latest write (timezone-aware).

        Only ``det checkpoint gc --orphans`` calls it.

        Raises:
            NotImplementedError: this store cannot list its storage ids.
        """
        raise NotImplementedError
