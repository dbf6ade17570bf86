"""Name of the stuck worker, where a framework's own exchange only knows that it waited in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from det_core.core import DistributedContext
from det_core.errors import PeerLate, PeerLost

_SECONDS: Final = 5.0
"""For the workers that are well. A failed exchange ends in all of them at nearly the same time."""


@contextmanager
def naming_stuck_workers(workers: DistributedContext | None, timeout: float | None) -> Iterator[None]:
    """Let a `PeerLost` that names no worker be followed by a roll call, which names the one that does not answer.

    All workers enter it in step.

    Args:
        timeout: seconds after which exchanges of the framework fail; None = they wait forever, and nothing is done.

    Raises:
        PeerLate: the exchange failed because of this worker.
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
