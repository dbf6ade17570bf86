"""Concurrent transfers of files whose requests are retried. A large file is transferred in several steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from det_core.interfaces.storage import Progress
from det_core.local_files.checksum import Entry
from det_core.local_files.parallel import in_parallel
from det_core.storage._retry_policy import DEFAULT_RETRY_POLICY, Retrier, RetryPolicy

Step: TypeAlias = Callable[[Retrier], int]
"""Part of a transfer, which can run in any order and thread. Returns the number of bytes that it moved."""

_MEMORY = 128 << 20


class Transfer(Protocol):
    """Transfer of one file."""

    memory: int
    """Maximum memory of one step, in bytes."""

    def steps(self) -> Sequence[Step]:
        """Return the steps of the transfer."""

    def finish(self) -> Entry:
        """Return the size and checksum of the transferred file. Called after all steps succeeded."""

    def abandon(self) -> None:
        """Remove everything that the transfer wrote to its target. Called once all steps have ended or failed."""


def run_transfers(
    moves: Mapping[str, Transfer],
    *,
    threads: int,
    progress: Progress | None = None,
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> dict[str, Entry]:
    """Run all transfers and return the entries of the files, by name.

    Steps start in the order of ``moves``. If one fails, all transfers are abandoned.

    Args:
        moves: transfers by name.
        threads: maximum number of concurrent steps. Fewer run if their memory would exceed 128 MiB.
        progress: called from any thread with the number of bytes that were just moved.
        retry_policy: retry policy of each request.

    Raises:
        StorageError: a transfer failed.
    """
    attempts = Retrier(retry_policy)
    fitting = _MEMORY // max((move.memory for move in moves.values()), default=_MEMORY)

    def work(step: Step) -> None:
        moved = step(attempts)
        if progress:
            progress(moved)

    try:
        steps = [step for move in moves.values() for step in move.steps()]
        in_parallel(work, steps, threads=max(1, min(threads, fitting)), on_error=attempts.stop)
        return {name: move.finish() for name, move in moves.items()}
    except BaseException:
        for move in moves.values():
            move.abandon()
        raise
