"""Worker that meets the other workers and trains nothing. `det doctor` starts such workers."""

from __future__ import annotations

import logging
import socket
import sys

from det_core.launch import backends


def main() -> int:
    """Meet the other workers. The chief prints the rank and the host of each."""
    logging.basicConfig(level=logging.INFO)
    workers = backends.connect_workers()
    hosts = workers.allgather((workers.rank, socket.gethostname()))
    if workers.rank == 0:
        print(*(f"rank {rank} on {host}" for rank, host in hosts), sep=", ")  # noqa: T201
    workers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
