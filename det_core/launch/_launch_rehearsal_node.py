"""Program that ``det doctor`` starts on each node of a launch, ``python -m det_core.launch._launch_rehearsal_node``."""

from __future__ import annotations

import platform
import socket
import sys
import time

from det_core.core._cluster_info import get_cluster_info
from det_core.launch.gpu_slots import count_gpus
from det_core.version import __version__

_SECONDS = 30.0
"""Time limit of connections between nodes."""


def main() -> int:
    """Connect the nodes with the first one, describe this node, and return the exit code."""
    info = get_cluster_info()
    assert info and info.rendezvous
    chief, others, port = info.container_addrs[0], len(info.container_addrs) - 1, info.rendezvous.port
    try:
        if others and info.container_rank == 0:
            with socket.create_server((socket.gethostbyname(chief), port or 0)) as server:
                server.settimeout(_SECONDS)
                for _ in range(others):
                    server.accept()[0].close()
        elif others:
            _connect(chief, port or 0)
    except OSError as error:
        problem = f"cannot connect to the first node, {chief}, port {port}" if info.container_rank else "no connection"
        return _fail(f"{info.agent_id}: {problem} within {_SECONDS:.0f} s ({error}); nodes of a trial need open ports")
    python = f"Python {platform.python_version()}, det-core {__version__}"
    print(f"{info.agent_id}: {python}, {count_gpus()} GPUs", flush=True)  # noqa: T201
    return 0


def _connect(host: str, port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _fail(problem: str) -> int:
    print(problem, file=sys.stderr, flush=True)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
