"""Interface of checkpoint storage: four methods on files named by (storage id, relative path).

All other methods have defaults. det takes care of the rest: manifests, checksums, the order of writes and the tracking
store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from det_core.local_files.checksum import Entry

RETENTION_KEYS = frozenset(("save_experiment_best", "save_trial_best", "save_trial_latest"))
"""Keys of ``checkpoint_storage`` with the numbers of checkpoints to keep. All others say where checkpoints are."""

Progress: TypeAlias = Callable[[int], object]
"""Called from any thread with the number of bytes that were just moved."""
Selector: TypeAlias = Callable[[str], bool]
"""Function of a relative path that returns whether the file is selected."""


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

    def put_files(self, storage_id: str, files: Mapping[str, Path]) -> dict[str, Entry]:
        """Store many files, and return their entries by path. The files survive a crash of this host on return.

        The default calls `put` in ``transfers`` threads, and then `sync`.

        Args:
            storage_id: id of the checkpoint.
            files: local files by the path to store them under.

        Raises:
            StorageError: the store rejected a file, or a file changed or vanished in the meantime.
        """
        from det_core.local_files.file_by_file import put_each  # `import det_core.core` needs no C library

        entries = put_each(partial(self.put, storage_id), files, threads=self.transfers)
        if files:
            self.sync(storage_id, list(files))
        return entries

    def get_files(
        self, storage_id: str, files: Mapping[str, tuple[Path, int]], progress: Progress | None = None
    ) -> dict[str, Entry]:
        """Write many stored files to their targets, and return the entries of what was written, by path.

        The default calls `get` in ``transfers`` threads. After an error, targets may exist and be incomplete.

        Args:
            storage_id: id of the checkpoint.
            files: target and expected size in bytes of each file, by path. A file of another size is no error, but has
                another entry than expected.
            progress: called from any thread with the number of bytes that were just written.

        Raises:
            FileNotFoundError: nothing is stored under one of the paths, which is the only argument of the error.
            StorageError: the store cannot be read.
        """
        from det_core.local_files.file_by_file import get_each

        return get_each(partial(self.get, storage_id), files, progress, threads=self.transfers)

    def abort_uploads(self, storage_id: str, selected: Selector) -> None:  # most stores have none
        """Remove what killed processes left of files that they had not stored completely, and that `list` omits.

        Args:
            storage_id: id of the checkpoint.
            selected: function of a path that returns whether to remove the remains of this file.
        """

    def with_few_retries(self) -> StorageManager:
        """Return a client of the same store that gives up within seconds, for a user who waits."""
        return self

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

    def location(self, storage_id: str) -> str:
        """Return the URI of this checkpoint, such as ``s3://bucket/prefix/ID``, or an empty string if it has none.

        Observers refer to checkpoints by it. The default is a ``file:`` URI for a store with a `local_path`. One of
        another scheme means that all machines have the same store, unlike a path.

        Args:
            storage_id: id of the checkpoint.
        """
        path = self.local_path(storage_id)
        return path.absolute().as_uri() if path else ""

    def stored(self) -> dict[str, datetime]:
        """Return every storage id that has files, with the time of its latest write (timezone-aware).

        Only ``det checkpoint gc --orphans`` calls it.

        Raises:
            NotImplementedError: this store cannot list its storage ids.
        """
        raise NotImplementedError
