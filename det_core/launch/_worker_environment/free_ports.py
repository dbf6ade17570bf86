"""TCP ports for the rendezvous of workers."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserve_free_ports(count: int) -> Iterator[list[int]]:
    """Reserve ``count`` free ports while the block runs."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        yield [one.getsockname()[1] for one in sockets]


def find_adjacent_free_ports() -> int:
    """Return a free port of 127.0.0.1 that is followed by another one, as nodes need that cannot search for one.

    It is below the ports that kernels give to outgoing connections, so that none of these takes it in the meantime.

    Raises:
        OSError: no socket can be opened.
    """
    while True:
        port = random.randrange(16_384, 32_766)  # noqa: S311
        try:
            with ExitStack() as held:
                for one in (port, port + 1):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", one))
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
