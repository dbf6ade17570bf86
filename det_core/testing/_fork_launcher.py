"""Processes that are forks of one that has imported a framework, which takes seconds, once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from det_core.scratch import scratch_directory
from det_core.testing import _fork_client

_END_SECONDS = 60.0
"""Seconds that the server has to end."""


@contextmanager
def run_fork_server(modules: Sequence[str]) -> Iterator[list[str]]:
    """Run a fork server while the block runs. Its requests wait while it imports the modules.

    Args:
        modules: modules to import. Their import must start no thread.

    Yields:
        The words to put between ``python`` and the arguments of a process that shall be a fork.
    """
    with scratch_directory("forks") as directory, socket.socket(socket.AF_UNIX) as listener:
        address = str(directory / "server")
        listener.bind(address)
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "det_core.testing._fork_server", str(listener.fileno()), *modules],
            # More threads would not survive a fork. The forks are unbuffered, as agents start all workers.
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        listener.close()
        try:
            yield ["-S", _fork_client.__file__, address]
        finally:
            assert server.stdin
            server.stdin.close()
            try:
                server.wait(_END_SECONDS)
            finally:
                server.kill()
