"""Checkpoints of a trial: the timer that says when one is due, and the writer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from det_core.core import CheckpointContext
from det_core.core.rank_agreement import RankGroup

_STALLS = 20
"""Minimum time of training between two checkpoints, as a multiple of the time for which the first stops it."""


class CheckpointTimer:
    """Timer that says when a checkpoint is due. Each checkpoint restarts it, whatever its reason.

    Args:
        seconds: seconds of training until a checkpoint is due, >= 0. 0 stands for never.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds or math.inf
        self._due_at = monotonic() + self._seconds

    def is_due(self) -> bool:
        """Return whether the last checkpoint is old enough for another one."""
        return monotonic() >= self._due_at

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Restart the timer at the end of the block, in which training stands still for a checkpoint."""
        start = monotonic()
        yield
        end = monotonic()
        self._due_at = end + max(self._seconds, _STALLS * (end - start))


class CheckpointSaver:
    """Writer of one checkpoint at a time, in a background thread of the chief if that is allowed.

    All ranks call `save`, `poll` and `wait` together. An error in the thread is raised by the next call on all ranks.

    Args:
        checkpoint: core context to store checkpoints with.
        saved: called on every rank with the storage id of each checkpoint, in the thread that calls the saver.
        ranks: all workers that train the trial.
    """

    def __init__(self, checkpoint: CheckpointContext, saved: Callable[[str], None], ranks: RankGroup) -> None:
        self._checkpoint = checkpoint
        self._saved = saved
        self._ranks = ranks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="det-saver")  # started by the first background save
        self._storing: Future[str] | None = None
        """Result of the background save, on the chief."""
        self._behind = False
        """Whether the chief is storing a checkpoint in the background, or its result has not been collected yet."""

    def save_shards(self, metadata: Mapping[str, Any], write: Callable[[Path], None]) -> None:
        """Store a checkpoint from the files that ``write`` writes on all ranks."""
        with self._checkpoint.store_path(metadata, shard=True) as (path, storage_id):
            write(path)
        self._saved(storage_id)

    def save(self, metadata: Mapping[str, Any], write: Callable[[Path], None], *, behind: bool) -> None:
        """Store a checkpoint from the files that ``write`` writes on the chief. Call `wait` first.

        Args:
            metadata: metadata of the checkpoint.
            write: writes the files into a directory.
            behind: whether to store it in the background and return at once.
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

    def poll(self) -> None:
        """Collect the result if a background save has finished."""
        if self._behind and self._ranks.by_chief(lambda: self._storing is not None and self._storing.done()):
            self.wait()

    def wait(self) -> None:
        """Wait for the background save, if any, and collect its result."""
        if self._behind:
            self._behind = False
            self._saved(self._ranks.by_chief(self._stored))

    def close(self) -> None:
        """Stop the thread.

        Only the chief waits for an unfinished save, because other ranks may have failed.
        """
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
