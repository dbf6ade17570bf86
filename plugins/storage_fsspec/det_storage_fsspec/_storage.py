"""Checkpoint storage in a file system of fsspec. Importing this module imports fsspec."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from det_core.interfaces.storage import StorageManager
from det_storage_fsspec._config import TIME_LIMITS, FsspecConfig
from det_storage_fsspec._connections import INTERACTIVE_TIMEOUT, PAUSES, Connections

_DIRECTORY: Final = ".det-directory"
"""Name of the empty file that stands for an empty directory, as object stores have none."""
_UPLOAD: Final = re.compile(r"\.det-upload-[0-9a-f]{8}$")
"""End of the name of a file that is not stored completely yet."""
_TRIES: Final = 20
"""Number of attempts to write into a directory that others may remove."""
_UNSAFE: Final = re.compile(r"[%?#*\[\]{}:\\\x00-\x1f\x7f]")
"""Characters that file systems of fsspec take for a part of a URL or a pattern."""


class FsspecStorage(StorageManager):
    """Store whose files are at ``url/storage_id/path``.

    Args:
        config: the config block.
        pauses: numbers of seconds before the second and further attempts of an operation.
    """

    def __init__(self, config: FsspecConfig, pauses: tuple[float, ...] = PAUSES) -> None:
        self._config = config
        self._connections = Connections(config, pauses)
        self._root = self._connections.root

    def put(self, storage_id: str, path: str, source: Path) -> None:
        place = self._place(storage_id, path)
        if path.endswith("/"):
            self._connections.use(lambda files: self._write(files, place, lambda new: files.pipe_file(new, b"")))
            return
        if not source.exists():  # else it would seem that the store lacks it
            raise FileNotFoundError(source)
        self._connections.use(lambda files: self._write(files, place, lambda new: files.put_file(str(source), new)))

    def get(self, storage_id: str, path: str, target: Path) -> None:
        place = self._place(storage_id, path)

        def read(files: Any) -> bool:
            try:
                entry = files.info(place)  # `isfile` takes any error for a missing file
            except (FileNotFoundError, NotADirectoryError):
                return False
            if entry["type"] != "file":
                return False
            files.get_file(place, str(target))
            return True

        if not self._connections.use(read):
            raise FileNotFoundError(path)

    def list(self, storage_id: str) -> dict[str, int]:
        found = self._connections.use(lambda files: dict(self._find(files, storage_id)))
        return {path: entry["size"] for path, entry in found.items() if not _UPLOAD.search(path)}

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        if not paths:
            return

        def remove(files: Any) -> None:
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    files.rm_file(self._place(storage_id, path))
            for directory in sorted({parent for path in paths for parent in _parents(path)}, key=len, reverse=True):
                with suppress(OSError, NotImplementedError):  # it is not empty, or object stores have none
                    files.rmdir(f"{self._root}/{storage_id}/{_quote(directory)}".rstrip("/"))

        self._connections.use(remove)

    def abort_uploads(self, storage_id: str, selected: Callable[[str], bool]) -> None:
        left = self._connections.use(lambda files: dict(self._find(files, storage_id)))
        self.delete(storage_id, [path for path in left if _UPLOAD.search(path) and selected(_UPLOAD.sub("", path))])

    def with_few_retries(self) -> FsspecStorage:
        timeout = min(self._config.timeout, INTERACTIVE_TIMEOUT)
        limits = dict.fromkeys(TIME_LIMITS.get(self._config.protocol, ()), timeout)
        options = {**self._config.storage_options, **limits}
        return FsspecStorage(
            self._config.model_copy(update={"timeout": timeout, "storage_options": options}), PAUSES[:1]
        )

    def location(self, storage_id: str) -> str:
        return f"{self._config.url}/{storage_id}"

    def stored(self) -> dict[str, datetime]:
        def read(files: Any) -> dict[str, datetime]:
            times: dict[str, datetime] = {}
            for place, _ in _walk(files, self._root):
                storage_id, slash, _ = place.removeprefix(self._root).strip("/").partition("/")
                if slash:
                    time = files.modified(place)
                    time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
                    times[storage_id] = max(time, times.get(storage_id, time))
            return times

        return self._connections.use(read)

    def _write(self, files: Any, place: str, write: Callable[[str], object]) -> None:
        """Write a file whole or not at all."""
        if self._config.way == "direct":
            _write_below(files, place, write)
            return
        new = f"{place}.det-upload-{uuid.uuid4().hex[:8]}"
        try:
            _write_below(files, new, write)
            files.mv(new, place)
        except BaseException:
            with suppress(Exception):  # the connection may be broken
                files.rm_file(new)
            raise

    def _find(self, files: Any, storage_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the paths and entries of all files of a checkpoint, complete or not."""
        start = f"{self._root}/{storage_id}/"
        for place, entry in _walk(files, start.rstrip("/")):
            path = unquote(place.removeprefix(start))
            yield (path.removesuffix(_DIRECTORY) if path.endswith(f"/{_DIRECTORY}") else path), entry

    def _place(self, storage_id: str, path: str) -> str:
        return f"{self._root}/{storage_id}/{_quote(path)}{_DIRECTORY if path.endswith('/') else ''}"


def _write_below(files: Any, place: str, write: Callable[[str], object]) -> None:
    """Write a file, and create its directories. Others may remove them while they are still empty."""
    for tries_left in range(_TRIES)[::-1]:
        try:
            with suppress(FileExistsError):  # another thread was faster
                files.makedirs(place.rpartition("/")[0], exist_ok=True)
            write(place)
        except FileNotFoundError:
            if not tries_left:
                raise
        else:
            return


def _walk(files: Any, directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the places and entries of all files below a directory. Unlike ``find`` of fsspec, it raises errors."""
    try:
        entries = files.ls(directory, detail=True)
    except FileNotFoundError:
        return
    for entry in entries:
        place = entry["name"].rstrip("/")
        if entry["type"] != "directory":
            yield place, entry
        elif place != directory:  # some object stores list a directory in itself
            yield from _walk(files, place)


def _quote(path: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", path)


def _parents(path: str) -> Iterator[str]:
    """Yield all directories above a path, and the checkpoint's own as an empty text."""
    parts = path.split("/")[:-1]
    return ("/".join(parts[:count]) for count in range(len(parts) + 1))
