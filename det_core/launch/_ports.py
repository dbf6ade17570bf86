"""TCP ports for the rendezvous of workers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Reserve ``count`` free ports while the block runs."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        yield [one.getsockname()[1] for one in sockets]
