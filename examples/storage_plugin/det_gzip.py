"""Checkpoints compressed with gzip: a whole storage plugin in one file.

Install it with ``pip install ./examples/storage_plugin`` and select it in a config::

    checkpoint_storage:
      type: gzip
      path: /data/checkpoints
      level: 9
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, Field

import det_core
from det_core.interfaces.storage import StorageManager
from det_core.specs import StorageSpec


@det_core.hookimpl
def det_storage() -> Iterator[StorageSpec]:
    yield StorageSpec(name="gzip", target="det_gzip:GzipStorage", config_model="det_gzip:GzipConfig")


class GzipConfig(BaseModel):
    path: Path
    level: int = Field(default=6, ge=1, le=9)


class GzipStorage(StorageManager):
    """Keeps ``state.pth`` as ``state.pth.gz``, and an empty directory ``logs/`` as ``logs/.gz``."""

    def __init__(self, config: GzipConfig) -> None:
        self._config = config

    def put(self, storage_id: str, path: str, source: Path) -> None:
        target = self._stored(storage_id, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        with partial.open("wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=self._config.level) as packed:
                if not path.endswith("/"):
                    with source.open("rb") as data:
                        shutil.copyfileobj(data, packed)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)

    def get(self, storage_id: str, path: str, target: Path) -> None:
        with gzip.open(self._stored(storage_id, path)) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)

    def list(self, storage_id: str) -> dict[str, int]:
        base = self._config.path / storage_id
        stored = [path for path in base.rglob("*.gz") if path.is_file()]
        return {path.relative_to(base).as_posix().removesuffix(".gz"): path.stat().st_size for path in stored}

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        for path in paths:
            self._stored(storage_id, path).unlink(missing_ok=True)
        if not self.list(storage_id):
            shutil.rmtree(self._config.path / storage_id, ignore_errors=True)

    def stored(self) -> dict[str, datetime]:
        """Not required; it lets ``det checkpoint gc --orphans`` find what killed runs left."""
        times: dict[str, float] = {}
        for path in self._config.path.glob("*/**/*"):
            storage_id = path.relative_to(self._config.path).parts[0]
            times[storage_id] = max(times.get(storage_id, 0), path.stat().st_mtime)
        return {storage_id: datetime.fromtimestamp(time, timezone.utc) for storage_id, time in times.items()}

    def _stored(self, storage_id: str, path: str) -> Path:
        return self._config.path / storage_id / f"{path}.gz"
