"""Checkpoints stored behind the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from det_core.core import CheckpointContext


class Saver:
    """Stores one checkpoint at a time, in a thread where that is allowed.

    An error of the thread is raised by the next call.

    Args:
        saved: called with the storage id of each, in the thread that calls the saver.
    """

    def __init__(self, checkpoint: CheckpointContext, saved: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self._saved = saved
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="det-saver")  # started by the first save behind
        self._storing: Future[str] | None = None

    def save(self, metadata: Mapping[str, Any], write: Callable[[Path], None], *, behind: bool) -> None:
        """Store what ``write`` writes; with ``behind`` this returns at once. `wait` for the one before first."""
        if behind:
            self._storing = self._thread.submit(self._store, metadata, write)
        else:
            self._saved(self._store(metadata, write))

    def look(self) -> None:
        """Take note of a checkpoint that became complete, or of its error."""
        if self._storing and self._storing.done():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being stored any more."""
        if self._storing:
            storing, self._storing = self._storing, None
            self._saved(storing.result())

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _store(self, metadata: Mapping[str, Any], write: Callable[[Path], None]) -> str:
        with self._checkpoint.store_path(metadata) as (path, storage_id):
            write(path)
        return storage_id
