"""Checkpoints on a mounted file system: ``directory`` and ``shared_fs``."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage._checkpoints import sync
from det_core.storage.config import DirectoryConfig, SharedFSConfig


class DirectoryStorage(StorageManager):
    """One directory per checkpoint. Each file appears by a rename after it is safely on disk."""

    def __init__(self, config: DirectoryConfig | SharedFSConfig) -> None:
        self._base = config.base

    def local_path(self, storage_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", storage_id):
            raise StorageError(f"{storage_id!r} is no checkpoint id; expected letters, digits, - and _")
        return self._base / storage_id

    def put(self, storage_id: str, path: str, source: Path) -> None:
        target = self.local_path(storage_id) / path
        with _told(self._base):
            if path.endswith("/"):
                target.mkdir(parents=True, exist_ok=True)
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
            try:
                with os.fdopen(descriptor, "wb") as file, source.open("rb") as data:
                    shutil.copyfileobj(data, file, 1 << 20)
                    file.flush()
                    os.fsync(file.fileno())
                Path(partial).replace(target)
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
            sync(target.parent)

    def get(self, storage_id: str, path: str, target: Path) -> None:
        source = self.local_path(storage_id) / path
        if not source.is_file():
            raise FileNotFoundError(source)
        with _told(target):
            shutil.copyfile(source, target)

    def list(self, storage_id: str) -> dict[str, int]:
        directory = self.local_path(storage_id)
        found = {}
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory).as_posix()
            if not path.is_dir():
                found[name] = path.stat().st_size
            elif not any(path.iterdir()):
                found[name + "/"] = 0
        return found

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        directory = self.local_path(storage_id)
        with _told(directory):
            for path in paths:
                target = directory / path
                if path.endswith("/"):
                    with suppress(FileNotFoundError):
                        target.rmdir()
                else:
                    target.unlink(missing_ok=True)
                self._prune(target.parent)

    def _prune(self, directory: Path) -> None:
        """Remove directories that became empty, up to the base."""
        while directory != self._base and directory.is_relative_to(self._base):
            try:
                directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty
            directory = directory.parent


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into ones that say what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write checkpoints under {path}: {error.strerror or error}; "
            "free space, mend the permissions, or choose another checkpoint_storage"
        ) from error
