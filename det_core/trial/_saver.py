"""Checkpoints stored behind the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from det_core.core import CheckpointContext
from det_core.core._together import Group


class Saver:
    """Stores one checkpoint at a time, in a thread of the chief where that is allowed.

    All ranks call `save`, `look` and `wait` together. An error of the thread is raised by the next call, on all.

    Args:
        saved: called on every rank with the storage id of each, in the thread that calls the saver.
        ranks: all that train the trial.
    """

    def __init__(self, checkpoint: CheckpointContext, saved: Callable[[str], None], ranks: Group) -> None:
        self._checkpoint = checkpoint
        self._saved = saved
        self._ranks = ranks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="det-saver")  # started by the first save behind
        self._storing: Future[str] | None = None
        """On the chief."""
        self._behind = False
        """Whether the chief is storing one, or has not told yet how that ended."""

    def save_shards(self, metadata: Mapping[str, Any], write: Callable[[Path], None]) -> None:
        """Store what ``write`` writes on all ranks."""
        with self._checkpoint.store_path(metadata, shard=True) as (path, storage_id):
            write(path)
        self._saved(storage_id)

    def save(self, metadata: Mapping[str, Any], write: Callable[[Path], None], *, behind: bool) -> None:
        """Store what the chief's ``write`` writes; if its ``behind`` is true, this returns at once.

        `wait` for the one before first.
        """

        def begin() -> str | None:
            if behind:
                self._storing = self._thread.submit(self._store, metadata, write)
                return None
            return self._store(metadata, write)

        storage_id = self._ranks.by_chief(begin)
        self._behind = storage_id is None
        if storage_id is not None:
            self._saved(storage_id)

    def look(self) -> None:
        """Take note of a checkpoint that became complete, or of its error."""
        if self._behind and self._ranks.by_chief(lambda: self._storing is not None and self._storing.done()):
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being stored any more."""
        if self._behind:
            self._behind = False
            self._saved(self._ranks.by_chief(self._stored))

    def close(self) -> None:
        """End the thread. What it still stores is waited for on the chief alone: other ranks may have failed."""
        try:
            if self._storing:
                self._saved(self._stored())
        finally:
            self._thread.shutdown()

    def _stored(self) -> str:
        assert self._storing
        storing, self._storing = self._storing, None
        return storing.result()

    def _store(self, metadata: Mapping[str, Any], write: Callable[[Path], None]) -> str:
        with self._checkpoint.store_path(metadata) as (path, storage_id):
            write(path)
        return storage_id
