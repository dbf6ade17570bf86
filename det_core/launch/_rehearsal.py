"""A worker that meets the others and trains nothing; `det doctor` starts some."""

from __future__ import annotations

import logging
import socket
import sys

from det_core.launch import backends


def main() -> int:
    """The chief prints which workers came, and from where."""
    logging.basicConfig(level=logging.INFO)
    workers = backends.meet()
    hosts = workers.allgather((workers.rank, socket.gethostname()))
    if workers.rank == 0:
        print(*(f"rank {rank} on {host}" for rank, host in hosts), sep=", ")  # noqa: T201
    workers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
