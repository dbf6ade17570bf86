"""Launcher of one node's workers.

`Horovod.start` runs it as ``python -m det_horovod._launcher WORKER [ARGUMENT...]``, with settings in the environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from det_core.errors import LaunchError
from det_core.launch.engine_signals import shield_from_engine
from det_core.launch.worker_output import OutputRelay
from det_core.launch.worker_processes import Worker, start_worker

_EXIT_TIMEOUT = 5.0
"""Time that the other workers have to exit after one failed, before they are killed."""
_RENDEZVOUS_TIMEOUT = 600.0
"""Time that the first node has to start the rendezvous."""
_POLL_INTERVAL = 0.05


def main(command: Sequence[str]) -> int:
    """Start the workers, wait for them, and return the exit code."""
    shield_from_engine()
    names = ("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "GLOO_RENDEZVOUS_PORT")
    node, nodes, slots, port = (int(os.environ[f"HOROVOD_{name}"]) for name in names)
    address = (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], port)
    try:
        with _rendezvous(address, nodes, slots) if node == 0 else _reached(address):
            return _run(command, node, slots)
    except LaunchError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1


@contextmanager
def _rendezvous(address: tuple[str, int], nodes: int, slots: int) -> Iterator[None]:
    """Serve the rendezvous only at this address, because any client can read and change its content."""
    try:
        server = RendezvousHTTPServer(address, RendezvousHandler, 0)
    except OSError as error:
        raise LaunchError(
            f"Horovod's rendezvous cannot be served at {address[0]}, port {address[1]}: {error.strerror}; choose "
            "another port with --port"
        ) from error
    hosts = [HostInfo(_name(node), slots) for node in range(nodes)]
    server.init(get_host_assignments(hosts, nodes * slots))  # so that it removes addresses after all ranks read them
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _reached(address: tuple[str, int]) -> Iterator[None]:
    """Wait until the first node serves the rendezvous, because workers themselves try for only a second."""
    deadline = time.monotonic() + _RENDEZVOUS_TIMEOUT
    while True:
        try:
            socket.create_connection(address, timeout=5.0).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"no answer from {address[0]}, port {address[1]} within {_RENDEZVOUS_TIMEOUT:.0f} s ({error}); "
                    "start the first node, and check that this node can connect to the port"
                ) from error
            time.sleep(0.2)
        else:
            break
    yield


def _run(command: Sequence[str], node: int, slots: int) -> int:
    workers: list[Worker] = []
    with closing(OutputRelay()) as relay:
        for local in range(slots):
            rank = node * slots + local
            place = {"HOROVOD_HOSTNAME": _name(node), "HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(local)}
            workers.append(start_worker(command, {**os.environ, **place}))
            relay.add_worker(workers[-1], rank)
        return _wait(workers)


def _wait(workers: Sequence[Worker]) -> int:
    """Wait for all workers, and return 0 or the exit code of the first that failed. End the others after a failure."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            break
        if None not in codes:
            return 0
        time.sleep(_POLL_INTERVAL)
    _end(workers)
    return failed[0] if failed[0] > 0 else 128 - failed[0]


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _EXIT_TIMEOUT
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()


def _name(node: int) -> str:
    """Return a node's name for Horovod, because host names may not be unique."""
    return f"node-{node}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
