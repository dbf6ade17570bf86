"""Concurrent transfers of files whose requests are retried. A large file is transferred in several steps."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError
from det_core.interfaces.storage import Progress
from det_core.local_files.checksum import Entry
from det_core.local_files.parallel import in_parallel

T = TypeVar("T")

_log = logging.getLogger("det.storage")
_SAY_AFTER = 3.0
"""Seconds until a warning says why a request is repeated."""

_jitter = random.Random()  # noqa: S311  # separate, because the global generator belongs to the trial


@dataclass(frozen=True)
class RetryPolicy:
    """Retry policy of one request.

    Attributes:
        tries: maximum number of attempts, or None for as many as ``total`` allows.
        first: seconds before the second attempt. The pause doubles with each attempt and is multiplied by a random
            factor from 0.5 to 1, so that many workers do not retry at the same moment (M. Brooker, "Exponential
            Backoff And Jitter", 2015).
        longest: maximum number of seconds between two attempts, even if the server asks for more.
        total: seconds after the first attempt in which further attempts may begin.
    """

    tries: int | None = None
    first: float = 0.2
    longest: float = 10.0
    total: float = 120.0


DEFAULT_RETRY_POLICY = RetryPolicy()
"""Default retry policy, for transfers."""
INTERACTIVE_RETRY_POLICY = RetryPolicy(tries=3, total=10.0)
"""Retry policy for requests whose result a user waits for."""
INTERACTIVE_TIMEOUT = 10.0
"""Maximum number of seconds that such a request waits for an answer."""


class Retrier:
    """Caller that repeats requests until they succeed. `stop` ends all its waits.

    Args:
        retry_policy: retry policy of each request.
    """

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._retry_policy = retry_policy
        self._stopped = threading.Event()
        self._is_announced = False

    def stop(self) -> None:
        """Stop retrying. A request that fails from now on raises after its current attempt."""
        self._stopped.set()

    def __call__(self, request: Callable[[], T]) -> T:
        """Call the request until it succeeds, and return its result.

        Args:
            request: function that raises TransientError if the call may be repeated.

        Raises:
            StorageError: the retry policy allows no further attempt.
        """
        began, pause = time.monotonic(), self._retry_policy.first
        for tried in itertools.count(1):
            try:
                return request()
            except TransientError as error:
                reason, wait = error, error.after or pause * _jitter.uniform(0.5, 1)
            wait = min(wait, self._retry_policy.longest)
            left = began + self._retry_policy.total - time.monotonic()
            if wait > left or tried == self._retry_policy.tries:
                break
            self._announce(reason, left)
            if self._stopped.wait(wait):
                break
            pause = min(2 * pause, self._retry_policy.longest)
        raise StorageError(f"{reason}; gave up after {tried} tries in {time.monotonic() - began:.0f} s") from reason

    def _announce(self, reason: TransientError, left: float) -> None:
        if self._retry_policy.total - left >= _SAY_AFTER and not self._is_announced:
            self._is_announced = True
            _log.warning("%s; will retry for %.0f s", reason, left)


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
