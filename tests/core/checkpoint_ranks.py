"""Ranks of one trial as threads of this process, each with its own CheckpointContext."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from det_core.core import CheckpointContext, DistributedContext
from det_core.core.event_stream import EventStream
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage

_jobs = itertools.count(os.getpid() % 40_000)  # differs between concurrent test processes


class RemoteStorage(StorageManager):
    """Storage like an object store, without a local path and without checksums of transfers."""

    def __init__(self, base: Path) -> None:
        self._inner = DirectoryStorage(DirectoryConfig(container_path=base))

    def put(self, storage_id: str, path: str, source: Path) -> None:
        self._inner.put(storage_id, path, source)

    def get(self, storage_id: str, path: str, target: Path) -> None:
        self._inner.get(storage_id, path, target)

    def list(self, storage_id: str) -> dict[str, int]:
        return self._inner.list(storage_id)

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        self._inner.delete(storage_id, paths)


@dataclass
class Job:
    """First run of trial 1 of a tracking store."""

    record: TrackingStore
    base: Path
    """Directory in which the storage keeps its files."""
    storage: StorageManager
    options: dict[str, Any] = field(default_factory=dict)

    def context(self, distributed: DistributedContext, **options: Any) -> CheckpointContext:
        return CheckpointContext(
            self.record,
            self.storage,
            self.record.run(1, 1),
            {"type": "directory", "container_path": str(self.base)},
            distributed=distributed,
            stream=EventStream("worker", cluster_id="", experiment_id=1, config={}, fetch_files=lambda *_: None),
            **{"require_steps": True, "flush": lambda: None, **self.options, **options},
        )

    def run(self, size: int, work: Callable[[CheckpointContext, int], Any]) -> list[Any]:
        """Run the work on every rank, and return the result or the exception of each."""
        offset = next(_jobs)

        def one(rank: int) -> Any:
            distributed = DistributedContext(
                rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1, port_offset=offset
            )
            try:
                return work(self.context(distributed), rank)
            except BaseException as error:  # noqa: BLE001  # tests check it
                return error
            finally:
                distributed.close()

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, range(size), timeout=60))

    def rows(self, *states: CheckpointState) -> list[CheckpointRecord]:
        return self.record.checkpoints(states=states or list(CheckpointState))

    def stored(self) -> list[str]:
        """Return the paths of all files in the storage, without the id of the checkpoint."""
        files = (path.relative_to(self.base) for path in self.base.rglob("*") if not path.is_dir())
        return sorted(Path(*file.parts[1:]).as_posix() for file in files)

    def nothing_is_left(self) -> bool:
        return self.stored() == [] and not self.rows(CheckpointState.ACTIVE, CheckpointState.COMPLETED)


STORES: dict[str, Callable[[Path], StorageManager]] = {
    "mounted": lambda base: DirectoryStorage(DirectoryConfig(container_path=base)),
    "remote": RemoteStorage,
}
on_every_store = pytest.mark.parametrize("job", STORES, indirect=True)


def make_job(record: TrackingStore, base: Path, store: str) -> Job:
    experiment = record.create_experiment(config={"name": "x"})
    trial = record.create_trial(experiment.id, hparams={}, seed=0)
    record.start_run(trial.id, allocation_id="a")
    return Job(record, base, STORES[store](base))


def tree(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "metadata.json"
    }
