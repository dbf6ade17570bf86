"""Storage of a checkpoint that only a det server can read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from det_core.errors import RecordNotFound, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.tracking.remote._server_connection import ServerConnection


class ServedStorage(StorageManager):
    """Storage whose files a det server reads and sends. It cannot be changed.

    Args:
        server: connection to the server.
    """

    def __init__(self, server: ServerConnection) -> None:
        self._server = server
        self._sizes = cache(self._read_sizes)

    def list(self, storage_id: str) -> dict[str, int]:
        """Return every stored path with its size, as `StorageManager.list`."""
        return dict(self._sizes(storage_id))

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        """Download a file, as `StorageManager.get`. A download that is interrupted continues where it was."""
        sizes = self._sizes(storage_id)
        if path not in sizes:
            raise FileNotFoundError(path)
        number = sorted(sizes).index(path)  # paths of clients would have to be checked
        self._server.download(f"{_files(storage_id)}/{number}", target, sizes[path])
        return None

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        """Refuse to store a file."""
        self._refuse(storage_id)

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        """Refuse to delete files."""
        self._refuse(storage_id)

    def location(self, storage_id: str) -> str:
        """Return the URL of the files of a checkpoint."""
        return f"{self._server.url}{_files(storage_id)}"

    def _read_sizes(self, storage_id: str) -> dict[str, int]:
        try:
            return {str(path): int(size) for path, size in self._server.get(_files(storage_id)).items()}
        except RecordNotFound:
            return {}

    def _refuse(self, storage_id: str) -> NoReturn:
        raise StorageError(f"the files at {self.location(storage_id)} can only be read")


def _files(storage_id: str) -> str:
    return f"/api/checkpoints/{storage_id}/files"
