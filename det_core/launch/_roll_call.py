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
def naming_stuck_workers(workers: DistributedContext | None, timeout: float | None) -> Iterator[None]:
    """Follow a `PeerLost` that names no worker by a roll call, and name the worker that does not answer.

    All workers must enter it in the same order.

    Args:
        timeout: seconds after which the framework's collectives fail; None = they wait forever, and nothing is done.

    Raises:
        PeerLate: a collective failed because of this worker.
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
