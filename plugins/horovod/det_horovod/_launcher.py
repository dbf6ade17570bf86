"""Starts the workers of one node: ``python -m det_horovod._launcher WORKER [ARGUMENT...]``, as `Horovod.start` says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from horovod.runner.common.util.hosts import HostInfo, get_host_assignments
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from det_core.errors import LaunchError

_SECONDS_TO_LEAVE = 5.0
"""For the other workers, once one failed; then they are killed."""
_SECONDS_TO_COME = 600.0
"""For the first node, until it serves the rendezvous."""
_TICK = 0.05

Worker = subprocess.Popen[bytes]


def main(command: Sequence[str]) -> int:
    """Start the workers and wait for them; the exit code."""
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
    """Serve the rendezvous at this address only, because any client can read and change its content."""
    try:
        server = RendezvousHTTPServer(address, RendezvousHandler, 0)
    except OSError as error:
        raise LaunchError(
            f"Horovod's rendezvous cannot be served at {address[0]}, port {address[1]}: {error.strerror}; choose "
            "another port with --port"
        ) from error
    hosts = [HostInfo(_name(node), slots) for node in range(nodes)]
    server.init(get_host_assignments(hosts, nodes * slots))  # so that it forgets addresses once they are known
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _reached(address: tuple[str, int]) -> Iterator[None]:
    """Wait until the first node serves the rendezvous; workers themselves would try for a second only."""
    deadline = time.monotonic() + _SECONDS_TO_COME
    while True:
        try:
            socket.create_connection(address, timeout=5.0).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"nobody answered at {address[0]}, port {address[1]} within {_SECONDS_TO_COME:.0f} s ({error}); "
                    "start the first node, and see that its port is open to this one"
                ) from error
            time.sleep(0.2)
        else:
            break
    yield


def _run(command: Sequence[str], node: int, slots: int) -> int:
    workers: list[Worker] = []
    relays: list[threading.Thread] = []
    for local in range(slots):
        rank = node * slots + local
        place = {"HOROVOD_HOSTNAME": _name(node), "HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(local)}
        pipe = subprocess.PIPE
        workers.append(subprocess.Popen(command, env={**os.environ, **place}, stdout=pipe, stderr=pipe))
        for source, target in ((workers[-1].stdout, sys.stdout.buffer), (workers[-1].stderr, sys.stderr.buffer)):
            relays.append(threading.Thread(target=_relay, args=(rank, source, target), daemon=True))
            relays[-1].start()
    code = _wait(workers)
    deadline = time.monotonic() + 1.0  # a process that a worker left behind keeps its streams open
    for relay in relays:
        relay.join(max(0.0, deadline - time.monotonic()))
    return code


def _relay(rank: int, source: BinaryIO, target: BinaryIO) -> None:
    """Pass lines on, each with its rank before it, and at once."""
    for line in source:
        target.write(b"[rank=%d] %s\n" % (rank, line.rstrip(b"\n")))
        target.flush()


def _wait(workers: Sequence[Worker]) -> int:
    """Until all have ended; the code of the first that failed, after which the others are ended."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            break
        if None not in codes:
            return 0
        time.sleep(_TICK)
    _end(workers)
    return failed[0] if failed[0] > 0 else 128 - failed[0]


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _SECONDS_TO_LEAVE
    for worker in workers:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()


def _name(node: int) -> str:
    """Of a node towards Horovod, where host names might be equal."""
    return f"node-{node}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
