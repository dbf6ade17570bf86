"""Ray actor that runs the node agent of one node."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import ray

STREAMS = ("stdout", "stderr")
CALLS_AT_ONCE = len(STREAMS) + 2
"""Number of threads of an actor, for each stream, for what is written, and for other calls."""
_CHUNK = 1 << 18
_WATCH_SECONDS = 1.0
_SET_BY_RAY = "OMP_NUM_THREADS"
"""Variable that Ray sets to the cores of the actor, which its workers share, or to 1 for an actor without cores."""


class NodeActor:
    """Owner of the pipes of a node agent. The agent ends its workers when the actor is gone, because its stdin ends."""

    def start(self, node: int, cpus: float) -> None:
        """Start the agent.

        Args:
            node: index of this node in the launch.
            cpus: number of cores of the actor, or 0 if it has no share of its own.
        """
        threading.Thread(target=_exit_with_parent, args=[os.getppid()], daemon=True).start()
        host: str = ray.util.get_node_ip_address()
        agent = [sys.executable, "-m", "det_cluster.agent_program"]
        self._process = subprocess.Popen(
            [*agent, "--node", str(node), "--host", host, "--cpus", str(math.ceil(cpus))],
            env={name: value for name, value in os.environ.items() if name != _SET_BY_RAY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # nobody signals it together with the actor
        )

    def read(self, stream: str) -> Iterator[bytes]:
        """Yield the content of a stream of `STREAMS` as it appears."""
        pipe = getattr(self._process, stream)
        while chunk := os.read(pipe.fileno(), _CHUNK):
            yield chunk

    def write(self, content: bytes) -> None:
        """Write to stdin, or do nothing if the agent has ended."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def end_input(self) -> None:
        """Close stdin."""
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.close()


def _exit_with_parent(parent: int) -> None:
    """End this process with the raylet, its parent. Ray lets actors live that are in a call when a raylet is killed."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
