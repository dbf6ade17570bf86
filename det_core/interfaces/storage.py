"""What a checkpoint store implements: four verbs over files named by (storage id, relative path), and options.

det owns everything above them: the manifest, checksums, threads, the order of writes, the record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


class StorageManager(ABC):
    """Stores the files of checkpoints. Constructed with the validated config block.

    Paths are relative, with ``/`` between parts on every system; a path ending in ``/`` is an
    empty directory. Methods raise `det_core.errors.StorageError` for what a user can act on
    (permission denied, disk full, bucket missing). They are called from several threads and processes
    at once, on different paths; a store may use threads of its own for the parts of one large file.
    """

    transfers: int = 4
    """How many files det puts or gets at once. Stores that mostly wait for a network want more."""

    @abstractmethod
    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        """Store the file ``source`` under ``path``, replacing what is there.

        The stored file appears whole or not at all. ``source`` is ignored when ``path`` ends in ``/``.

        Returns:
            The CRC-32C of what was stored as 8 hexadecimal digits, or None where knowing it would cost
            a second reading; det then reads ``source`` itself.
        """

    @abstractmethod
    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        """Write the stored file to ``target``, whose parent directory exists.

        Returns:
            The CRC-32C of what was read, as `put` does, or None; det then reads ``target`` itself.

        Raises:
            FileNotFoundError: nothing is stored under ``path``.
        """

    @abstractmethod
    def list(self, storage_id: str) -> dict[str, int]:
        """Map every stored path to its stored size in bytes (0 for directories); empty if unknown."""

    @abstractmethod
    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        """Remove the paths, in the order given; those that do not exist are not an error."""

    def sync(self, storage_id: str, paths: Sequence[str]) -> None:  # most stores need nothing here
        """Return once these paths survive a crash of this host.

        Called on the host that put them, with at least one, often with many at once. Stores whose `put` ensures
        it need not implement it.
        """

    def local_path(self, storage_id: str) -> Path | None:
        """The directory of this checkpoint if users may read and write it in place, else None."""
        return None

    def stored(self) -> dict[str, datetime]:
        """Map every storage id with at least one file to the time of its latest write, aware.

        Only ``det checkpoint gc --orphans`` asks.

        Raises:
            NotImplementedError: this store cannot tell.
        """
        raise NotImplementedError
