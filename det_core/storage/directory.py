"""Checkpoint storage on a mounted file system, for the types ``directory`` and ``shared_fs``."""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar, Protocol

from det_core.disk_errors import explain_disk_error
from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.local_files.below import opened_parent
from det_core.local_files.checksum import checksum_file
from det_core.local_files.file_sync import sync_file_system, sync_paths
from det_core.storage._directory_tree import refuse_outside, walk_directory
from det_core.storage._manifest import METADATA_FILE

_READ_ONLY = 0o444
_FEW = 16
"""Maximum number of files that are synced one by one. More files take a tenth of the time with one sync of the file
system."""
_TRIES = 100
"""Number of attempts to create a file, because a concurrent `delete` may remove its directory while it is empty."""
_ID = re.compile(r"[A-Za-z0-9_-]+")
_THIS_PROCESS = uuid.uuid4().hex[:8]
_numbers = itertools.count()


class Directory(Protocol):
    """Config of a store in one directory.

    Attributes:
        is_local: whether the directory is on a disk of this host.
    """

    is_local: ClassVar[bool]

    @property
    def base(self) -> Path: ...


class DirectoryStorage(StorageManager):
    """Store with one directory per checkpoint. Files appear whole by a rename and are write-protected."""

    def __init__(self, config: Directory) -> None:
        self._base = config.base
        if config.is_local:  # unlike a network, a local disk gains nothing from waiting threads
            self.transfers = 1

    def local_path(self, storage_id: str) -> Path:
        return self._base / _checked(storage_id)

    def put(self, storage_id: str, path: str, source: Path) -> str | None:
        target = self._file(storage_id, path)
        with _told("write checkpoints under", self._base):
            if path.endswith("/"):
                Path(target).mkdir(parents=True, exist_ok=True)
                return None
            directory = target.rpartition("/")[0]
            partial = f"{directory}/.partial-{_THIS_PROCESS}-{os.getpid()}-{next(_numbers)}"
            try:
                crc = _copy(source, partial)
                if path == METADATA_FILE:
                    sync_paths([Path(partial)])  # otherwise a power failure could keep its name but lose its contents
                os.replace(partial, target)  # noqa: PTH105  # as in _file
            except BaseException:
                Path(partial).unlink(missing_ok=True)
                raise
            return crc

    def get(self, storage_id: str, path: str, target: Path) -> str | None:
        source = Path(self._file(storage_id, path))
        if not source.is_file():
            raise FileNotFoundError(source)
        refuse_outside(self.local_path(storage_id), path)
        with _told("copy a stored file to", target), target.open("wb", buffering=0) as file:
            return checksum_file(source, copy_to=file.fileno()).crc32c

    def list(self, storage_id: str) -> dict[str, int]:
        sizes = {}
        with _told("read checkpoints under", self._base):
            for name, entry in walk_directory(self.local_path(storage_id)):
                with suppress(FileNotFoundError):  # removed in the meantime
                    sizes[name] = 0 if name.endswith("/") else entry.stat(follow_symlinks=False).st_size
        return sizes

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        directory = self.local_path(storage_id)
        with _told("remove files of", directory):
            for path in paths:
                remove = os.rmdir if path.endswith("/") else os.unlink
                # Others may put a link into the place of a directory that was listed, so that files elsewhere vanish.
                with suppress(FileNotFoundError), opened_parent(directory, path.removesuffix("/")) as (parent, name):
                    remove(name, dir_fd=parent)
                self._prune((directory / path).parent)
            self._prune(directory)

    def sync(self, storage_id: str, paths: Sequence[str]) -> None:
        directory = self.local_path(storage_id)
        with _told("write checkpoints under", self._base):
            if len(paths) <= _FEW or not sync_file_system(directory):
                above = {parent for path in {path.rpartition("/")[0] for path in paths} for parent in _upwards(path)}
                sync_paths([directory / path for path in (*paths, *above)] + [self._base])

    def stored(self) -> dict[str, datetime]:
        if not self._base.is_dir():
            return {}
        times = {}
        with _told("read checkpoints under", self._base):
            for path in self._base.iterdir():
                if _ID.fullmatch(path.name) and path.is_dir():
                    with suppress(FileNotFoundError):  # removed in the meantime
                        times[path.name] = datetime.fromtimestamp(_latest_write(path), timezone.utc)
        return times

    def _file(self, storage_id: str, path: str) -> str:
        # Without pathlib, which would take as long as the system calls for a small file.
        return f"{self._base}/{_checked(storage_id)}/{path}"

    def _prune(self, directory: Path) -> None:
        """Remove a directory and its parents below the base as far as they are empty."""
        while directory != self._base and directory.is_relative_to(self._base):
            try:
                directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                return  # not empty
            directory = directory.parent


def _checked(storage_id: str) -> str:
    if not _ID.fullmatch(storage_id):
        raise StorageError(f"{storage_id!r} is not a checkpoint id; expected letters, digits, - and _")
    return storage_id


def _copy(source: Path, partial: str) -> str:
    copy = _create(partial)
    try:
        return checksum_file(source, copy_to=copy, sync=True).crc32c
    finally:
        os.close(copy)


def _create(path: str) -> int:
    """Create and open a new file. Its directories are created only after an open failed, to save system calls."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for _ in range(_TRIES):
        try:
            return os.open(path, flags, _READ_ONLY)
        except FileNotFoundError:
            with suppress(FileNotFoundError, FileExistsError):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, _READ_ONLY)


def _upwards(path: str) -> Iterator[str]:
    """Yield a relative directory and all its parents, of which the last is empty."""
    yield path
    if path:
        yield from _upwards(path.rpartition("/")[0])


def _latest_write(directory: Path) -> float:
    times = (entry.stat(follow_symlinks=False).st_mtime for _, entry in walk_directory(directory))
    return max((directory.stat().st_mtime, *times))


@contextmanager
def _told(what: str, place: Path) -> Iterator[None]:
    """Turn errors of the operating system into StorageError with advice for the user."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise explain_disk_error(error, place) or StorageError(
            f"cannot {what} {place}: {error.strerror or error}{where}; "
            "fix the permissions, or choose another checkpoint_storage"
        ) from error
