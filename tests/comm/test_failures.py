"""Workers that die, disconnect, stop, fork, or call other collectives than their peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from det_core.core import DistributedContext
from det_core.errors import CommError, OutOfStep, PeerLost

from . import job

LAYOUTS = pytest.mark.parametrize("machines", [(3,), (2, 2), (1, 1, 1)], ids=str)


def errors(futures: list[Future[Any]]) -> list[BaseException]:
    found = [future.exception() for future in futures]
    assert None not in found
    return [error for error in found if error]


@LAYOUTS
@pytest.mark.parametrize("name", ["gather", "allgather", "broadcast"])
def test_a_worker_that_disconnects_is_lost_to_all(machines: tuple[int, ...], name: str) -> None:
    def work(context: DistributedContext) -> None:
        context.allgather(None)
        if context.rank == context.size - 1:
            return
        with pytest.raises(PeerLost, match=rf"rank {context.size - 1} \(pid {os.getpid()} on .*disconnected") as lost:
            while True:
                getattr(context, name)(None)
                context.allgather(None)
        assert lost.value.rank == context.size - 1
        for again in (context.gather, context.broadcast, context.allgather_local):
            with pytest.raises(PeerLost) as repeated:
                again(1)
            assert repeated.value is lost.value

    job.threads(job.layout(*machines), work)


@LAYOUTS
@pytest.mark.parametrize(
    ("one", "others"),
    [
        ("allgather", "gather"),
        ("gather", "allgather"),
        ("gather", "broadcast"),
        ("broadcast", "gather"),
        ("allgather", "broadcast"),
        ("broadcast", "allgather"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1])
def test_different_collectives_are_an_error_in_all_workers(
    machines: tuple[int, ...], one: str, others: str, odd: int
) -> None:
    def work(context: DistributedContext) -> None:
        context.allgather(1)
        getattr(context, one if context.rank == odd else others)(1)
        context.gather(1)
        context.allgather(1)

    futures = job.outcomes(job.layout(*machines), work)
    for error in errors(futures):
        assert isinstance(error, OutOfStep)
        assert "rank 0 (pid" in str(error) or "rank 1 (pid" in str(error)


@pytest.mark.integration
def test_a_timeout_names_the_late_worker() -> None:
    given_up = threading.Barrier(3)

    def work(context: DistributedContext) -> None:
        context.allgather(1)
        if context.rank == 2:
            given_up.wait(60)
        try:
            context.allgather(1)
        finally:
            if context.rank != 2:
                given_up.wait(60)

    for error in errors(job.outcomes(job.layout(3), work, timeout=1.0)):
        assert isinstance(error, PeerLost)
        assert error.rank == 2
        assert "rank 2" in str(error) and "did not join allgather within 1 s" in str(error)


def test_a_late_worker_is_waited_for(ticks: float) -> None:
    def work(context: DistributedContext) -> list[Any]:
        if context.rank == 1:
            time.sleep(5 * ticks)
        return context.allgather(context.rank)

    for machines in ((2,), (1, 1, 1)):
        assert job.threads(job.layout(*machines), work) == [list(range(sum(machines)))] * sum(machines)


class Unpicklable:
    def __reduce__(self) -> str:
        raise TypeError("not this one")


class Unloadable:
    def __reduce__(self) -> Any:
        return _fail, ()


def _fail() -> None:
    raise LookupError("cannot be loaded here")


def test_an_object_that_cannot_be_pickled_raises_in_its_worker() -> None:
    def work(context: DistributedContext) -> list[Any]:
        if context.rank == 1:
            for method in (context.allgather, context.gather, context.allgather_local, context.gather_local):
                with pytest.raises(TypeError, match="not this one"):
                    method(Unpicklable())
        else:
            with pytest.raises(TypeError, match="not this one"):
                context.broadcast(Unpicklable())
        return context.allgather(context.rank)

    assert job.threads(job.layout(2), work) == [[0, 1]] * 2


def test_an_object_that_cannot_be_unpickled_raises_in_the_receiver() -> None:
    def work(context: DistributedContext) -> list[Any]:
        if context.rank == 0:
            context.broadcast(Unloadable())
        else:
            with pytest.raises(LookupError):
                context.broadcast(None)
        return context.allgather(context.rank)

    assert job.threads(job.layout(2), work) == [[0, 1]] * 2


def test_a_closed_context_refuses_calls() -> None:
    def work(context: DistributedContext) -> None:
        channel = context.channel()
        context.allgather(1)
        context.close()
        context.close()
        for each in (context, channel):
            with pytest.raises(CommError, match="was closed"):
                each.allgather(1)

    job.threads(job.layout(2), work)


def test_a_broken_channel_leaves_the_context_usable() -> None:
    def work(context: DistributedContext) -> list[Any]:
        channel = context.channel()
        with pytest.raises(OutOfStep):
            (channel.gather if context.rank else channel.allgather)(1)
        return context.allgather(context.rank)

    assert job.threads(job.layout(2), work) == [[0, 1]] * 2


@pytest.mark.integration
@pytest.mark.slow
def test_a_stopped_worker_is_waited_for() -> None:
    body = """
    context = join(force_tcp=True, pub_port=int(sys.argv[1]))
    context.allgather(None)
    print("ready", flush=True)
    for step in range(200):
        context.broadcast(bytes(100_000))
        if step % 50 == 0:
            context.gather(step)
    context.allgather(None)
    """
    with job.processes(job.layout(2), body, job.free_port()) as workers:
        assert workers[1].stdout
        workers[1].stdout.readline()
        workers[1].send_signal(signal.SIGSTOP)
        time.sleep(35)
        assert workers[0].poll() is None
        workers[1].send_signal(signal.SIGCONT)
        assert [each.code for each in job.ends(workers)] == [0, 0]


FORK = """
context = join()
context.allgather(None)
if context.rank == 1:
    if os.fork() == 0:
        try:
            context.allgather(None)
        except CommError as error:
            print(error, flush=True)
        os.close(1), os.close(2)
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    context.allgather(None)
except PeerLost as error:
    print(error.rank)
"""


@pytest.mark.integration
def test_a_forked_child_does_not_hide_its_parents_death() -> None:
    with job.processes(job.layout(2), FORK) as workers:
        ended = job.ends(workers)
    assert ended[0].out == "1\n", ended
    assert "a forked child cannot use it" in ended[1].out


@pytest.mark.integration
def test_a_killed_worker_leaves_no_files_behind() -> None:
    body = """
    context = join()
    context.allgather(bytes(1_000_000))
    print("ready", flush=True)
    while True:
        context.allgather(bytes(1_000_000))
    """
    with TemporaryDirectory(dir="/tmp") as directory:  # other suites use the usual one at the same time
        with job.processes(job.layout(2), body, TMPDIR=directory) as workers:
            for worker in workers:
                assert worker.stdout
                worker.stdout.readline()
            for worker in workers:
                worker.kill()
        (sockets,) = Path(directory).iterdir()
        assert list(sockets.iterdir()) == []
    assert not [file for file in Path("/dev/shm").iterdir() if "det" in file.name]


SENDS_AHEAD = """
import resource, socket, threading
from det_core.comm._link import Link
from det_core.comm._message import DATA, Message
from det_core.comm._ranks import Peer
os.setgroups([])
os.setuid(65534)  # the limit is for ordinary users
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
ends = [Link(sock, Peer(rank, rank, 1, "here")) for rank, sock in enumerate(socket.socketpair())]
payload, received, waited = bytes(70_000), [], threading.Event()

def receive():
    waited.wait()
    for _ in range(200):
        received.append(len(ends[1].receive(lambda links: None)[3]))

def idle(links):
    waited.set()

thread = threading.Thread(target=receive, daemon=True)
thread.start()
for number in range(200):
    ends[0].send(Message(DATA, 0, number, payload), idle)
    if number > 150:
        waited.set()
thread.join()
print(set(received), len(received))
"""


@pytest.mark.integration
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_sender_waits_at_the_users_limit_of_descriptors_in_transit() -> None:
    """Reaching the limit of descriptors in transit (ETOOMANYREFS) does not mean that a peer is lost."""
    program = "import os\n" + SENDS_AHEAD
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "{70000} 200\n", ran.stderr
