"""Several hosts, simulated by network namespaces that a bridge connects, each with an address of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci

from . import job

pytestmark = pytest.mark.integration
SUBNET = "10.213.77"
PORT = 12360  # a namespace has all ports for itself


@dataclass(frozen=True)
class Hosts:
    """Network namespaces of a test, where machine m is ``{name}-{m}`` with address ``.{m + 1}``."""

    name: str
    count: int

    @property
    def chief_ip(self) -> str:
        return f"{SUBNET}.1"

    def inside(self, machine: int) -> list[str]:
        return ["ip", "netns", "exec", f"{self.name}-{machine}"]

    def sent_and_received(self, machine: int) -> int:
        """Return the bytes sent and received by a machine so far, counted at the bridge."""
        statistics = Path(f"/sys/class/net/{self.name}{machine}/statistics")
        return sum(int((statistics / f"{way}_bytes").read_text()) for way in ("rx", "tx"))


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.getuid() != 0 or not shutil.which("ip"):
        skip_or_fail_in_ci("network namespaces need root and iproute2")
    found = Hosts(f"d{uuid.uuid4().hex[:6]}", 4)
    bridge = f"{found.name}b"
    try:
        ip("link", "add", bridge, "type", "bridge")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel or container has no bridges: {error.stderr.strip()}")
    try:
        ip("link", "set", bridge, "up")
        for machine in range(found.count):
            namespace, wire = f"{found.name}-{machine}", f"{found.name}{machine}"
            ip("netns", "add", namespace)
            ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("link", "set", wire, "master", bridge, "up")
            ip("-n", namespace, "address", "add", f"{SUBNET}.{machine + 1}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")
            ip("-n", namespace, "link", "set", "lo", "up")
        yield found
    finally:
        for machine in range(found.count):
            # Remove the wire first, because data in flight of dead processes keeps a namespace alive for minutes.
            for name in (["link", "delete", f"{found.name}{machine}"], ["netns", "delete", f"{found.name}-{machine}"]):
                subprocess.run(["ip", *name], capture_output=True)
        ip("link", "delete", bridge)


COLLECTIVES = """
context = join(chief_ip=sys.argv[1])
machines, size, rounds = eval(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
everybody, channel = list(range(context.size)), context.channel()
first = sum(machines[:context.cross_rank])
here = everybody[first:first + machines[context.cross_rank]]
for payload in (b"small", bytes(2_000_000)):
    assert context.gather((context.rank, payload)) in ([(rank, payload) for rank in everybody], None)
    assert context.broadcast(payload if context.rank == 0 else None) == payload
    assert context.allgather_local(context.rank) == here
    assert context.gather_local(context.rank) == (None if context.local_rank else here)
    assert channel.broadcast_local(context.rank) == here[0]
assert len(set(context.allgather(os.readlink("/proc/self/ns/net")))) == len(machines)
payload = bytes([context.rank]) * size
print("ready", flush=True)
sys.stdin.readline()
for _ in range(rounds):
    assert context.allgather(payload) == [bytes([rank]) * size for rank in everybody]
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "machines",
    [(2, 1, 3), *(pytest.param(one, marks=pytest.mark.soak) for one in ((1, 1, 1, 1), (2, 2, 2, 2), (3, 1)))],
    ids=str,
)
def test_an_allgather_sends_at_most_twice_all_payloads_over_a_wire(hosts: Hosts, machines: tuple[int, ...]) -> None:
    """All other methods work between hosts, too."""
    size, rounds = 1 << 20, 5
    ranks = job.layout(*machines)
    with job.processes(ranks, COLLECTIVES, hosts.chief_ip, machines, size, rounds, prefix=hosts.inside) as workers:
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        before = [hosts.sent_and_received(machine) for machine in range(len(machines))]
        for worker in workers:
            assert worker.stdin
            print(file=worker.stdin, flush=True)
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "done\n", worker.communicate()[1]
        crossed = [hosts.sent_and_received(machine) - before[machine] for machine in range(len(machines))]
    allowed = 2 * len(ranks) * size * rounds
    print(f"bytes over each wire, of {allowed} allowed: {crossed}")
    assert max(crossed) <= allowed
    assert min(crossed) >= allowed // 4


LOOP = """
context = join(chief_ip=sys.argv[1], pub_port=int(sys.argv[2]))
context.allgather(None)
print("ready", flush=True)
try:
    while True:
        getattr(context, sys.argv[3])(bytes(int(sys.argv[4])))
except PeerLost as error:
    print(error.rank, error)
"""


@pytest.mark.slow
def test_a_host_that_does_not_answer_is_lost_after_half_a_minute(hosts: Hosts) -> None:
    calls = {PORT: ("allgather", 100), PORT + 2: ("allgather", 3_000_000), PORT + 4: ("gather", 100)}
    with ExitStack() as stack:
        jobs = {
            call: stack.enter_context(
                job.processes(job.layout(1, 1, 1), LOOP, hosts.chief_ip, port, *call, prefix=hosts.inside)
            )
            for port, call in calls.items()
        }
        for worker in itertools.chain(*jobs.values()):
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        time.sleep(0.5)
        ip("link", "set", f"{hosts.name}2", "down")
        cut = time.monotonic()

        def end(workers: list[subprocess.Popen[str]]) -> tuple[list[job.Ended], float]:
            return job.ends(workers, timeout=60), time.monotonic() - cut

        with ThreadPoolExecutor(len(jobs)) as pool:
            ended = dict(zip(jobs, pool.map(end, jobs.values()), strict=True))
    for call, ((first, second, alone), took) in ended.items():
        print(f"{call} took {took:.1f} s: {[each.out for each in (first, second, alone)]}")
        assert 20 < took < 45
        assert first.out.startswith("2 "), first
        assert second.out.startswith("2 "), second
        assert alone.out.startswith(("0 ", "1 ")), alone
