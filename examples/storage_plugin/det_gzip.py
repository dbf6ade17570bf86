"""Storage plugin in one file, which compresses checkpoints with gzip.

Install it with ``pip install ./examples/storage_plugin`` and select it in a config::

    checkpoint_storage:
      type: gzip
      path: /data/checkpoints
      level: 9
"""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import AfterValidator, BaseModel, Field

import det_core
from det_core.errors import CheckpointCorrupt, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    yield StorageSpec(name="gzip", target="det_gzip:GzipStorage", config_model="det_gzip:GzipConfig")


class GzipConfig(BaseModel):
    path: Annotated[Path, AfterValidator(Path.absolute)]
    """Directory of all checkpoints."""
    level: int = Field(default=6, ge=1, le=9)
    """Compression level, from 1 (fastest) to 9 (smallest files)."""


class GzipStorage(StorageManager):
    """Store that keeps ``state.pth`` as ``state.pth.gz``, and an empty directory ``logs/`` as ``logs/.gz``."""

    def __init__(self, config: GzipConfig) -> None:
        self._config = config

    def put(self, storage_id: str, path: str, source: Path) -> None:
        partial = self._stored(storage_id, f"{path}.{uuid.uuid4().hex}")  # `list` returns it, so leftovers get deleted
        with _told(partial):
            try:
                with _create(partial) as file:
                    with gzip.GzipFile("", "wb", self._config.level, file) as packed:
                        if not path.endswith("/"):
                            with source.open("rb") as data:
                                shutil.copyfileobj(data, packed)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(self._stored(storage_id, path))
            finally:
                partial.unlink(missing_ok=True)

    def get(self, storage_id: str, path: str, target: Path) -> None:
        stored = self._stored(storage_id, path)
        with _told(stored), gzip.open(stored) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)

    def list(self, storage_id: str) -> dict[str, int]:
        base = self._config.path / storage_id
        sizes = {}
        for path in _files(base):
            name = path.relative_to(base).as_posix().removesuffix(".gz")
            with suppress(FileNotFoundError):  # deleted since it was found
                sizes[name] = 0 if name.endswith("/") else path.stat().st_size
        return sizes

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        for path in paths:
            stored = self._stored(storage_id, path)
            with _told(stored):
                stored.unlink(missing_ok=True)
            with suppress(OSError):  # stop at the first that is missing or not empty
                for directory in itertools.takewhile(lambda above: above != self._config.path, stored.parents):
                    directory.rmdir()

    def stored(self) -> dict[str, datetime]:
        """Return all ids and the times of their latest files.

        This method is optional. ``det checkpoint gc --orphans`` uses it to find files of killed runs.
        """
        times: dict[str, float] = {}
        for path in _files(self._config.path):
            storage_id = path.relative_to(self._config.path).parts[0]
            with suppress(FileNotFoundError):
                times[storage_id] = max(times.get(storage_id, 0), path.stat().st_mtime)
        return {storage_id: datetime.fromtimestamp(time, timezone.utc) for storage_id, time in times.items()}

    def _stored(self, storage_id: str, path: str) -> Path:
        return self._config.path / storage_id / f"{path}.gz"


def _files(directory: Path) -> Iterator[Path]:
    for where, _, names in os.walk(directory):  # ignores directories that are deleted while it runs
        yield from (Path(where, name) for name in names)


def _create(path: Path) -> BinaryIO:
    while True:
        with suppress(FileNotFoundError, FileExistsError):  # a concurrent delete removed the directory
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CheckpointCorrupt(f"{path} is damaged: {error}; restore an older checkpoint") from error
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error}; choose another path or checkpoint") from error
