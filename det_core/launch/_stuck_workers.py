"""Roll call that identifies a stuck worker, because a framework's own collective only reports a timeout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from det_core.core import DistributedContext
from det_core.errors import PeerLate, PeerLost

_SECONDS: Final = 5.0
"""Time limit of the roll call. A failed collective ends on all healthy workers at nearly the same time."""


@contextmanager
def name_stuck_workers(workers: DistributedContext | None, timeout: float | None) -> Iterator[None]:
    """Hold a roll call after a `PeerLost` that names no worker, and name the worker that does not answer.

    All workers must enter the context in the same order.

    Args:
        workers: all workers, or None if there is only one, in which case nothing is done.
        timeout: seconds after which the framework's collectives fail, or None if they never do, in which case nothing
            is done.

    Raises:
        PeerLate: a collective failed because of the worker that this error names.
    """
    if workers is None or timeout is None:
        yield
        return
    channel = workers._channel(_SECONDS)
    try:
        yield
    except PeerLost as error:
        if error.rank is not None:
            raise
        try:
            channel.allgather(None)
        except PeerLate as late:
            raise PeerLate(
                f"rank {late.rank} is stuck: the others waited for it for {timeout:g} s; "
                "raise distributed.timeout if it may be that late",
                late.rank,
            ) from error
        raise
