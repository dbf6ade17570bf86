"""Processes that are forks of one that has imported a framework, which takes seconds, once."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from det_core.launch.prepared_process import PreparedProcess
from det_core.scratch import scratch_directory
from det_testing import _fork_client


@contextmanager
def run_fork_server(modules: Sequence[str]) -> Iterator[list[str]]:
    """Run a prepared process while the block runs. Its requests wait while it imports the modules.

    Args:
        modules: modules to import, as for `PreparedProcess`.

    Yields:
        The words to put between ``python`` and the arguments of a process that becomes a fork.
    """
    # More threads would not survive a fork. The forks are unbuffered, as agents start all workers.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with (
        scratch_directory("forks") as directory,
        socket.socket(socket.AF_UNIX) as listener,
        closing(PreparedProcess(["det_testing", *modules], environment)) as prepared,
    ):
        address = str(directory / "server")
        listener.bind(address)
        listener.listen()
        threading.Thread(target=_pass_connections, args=(listener, prepared), daemon=True).start()
        yield ["-S", _fork_client.__file__, address]
        listener.shutdown(socket.SHUT_RDWR)  # ends accept(), which close() does not
        assert not prepared.problem, prepared.problem


def _pass_connections(listener: socket.socket, prepared: PreparedProcess) -> None:
    while True:
        try:
            client, _ = listener.accept()
            with client:
                prepared.pass_connection(client)
        except OSError:  # one of them is closed
            return
