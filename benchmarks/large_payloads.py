"""Times of collectives with large payloads, with and without the two ways in which det sends them.

On one host, anonymous files are compared with bytes over the Unix socket. Between hosts, which are network namespaces
whose links are limited to a rate, the ring is compared with a star, in which the chief collects all payloads and sends
them to all. Both ways of a comparison take turns in the same processes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from det_core.comm import _link, _payload
from det_core.comm._collectives import HubCollectives
from det_core.comm._ring_collectives import RingCollectives
from det_core.core import DistributedContext

ROUNDS = 5
WITHIN_HOST = {1 << 10: 200, 40_000: 60, 100_000: 60, 1 << 20: 10, 1 << 25: 1}
BETWEEN_HOSTS = {1 << 10: 200, 40_000: 30, 1 << 20: 5, 1 << 23: 1}
"""Number of calls in a round, by size of the payload in bytes."""
ONE_HOST = (2, 4, 8)
MACHINES = ((1, 1), (2, 2), (1, 1, 1), (2, 2, 2), (1, 1, 1, 1), (2, 2, 2, 2))
RATES = ("200mbit", "1gbit")
SUBNET = "10.213.78"
KEY = "k" * 64

Seconds = list[tuple[float, float]]
"""Time and CPU time of one call, by round."""


def work(place: dict[str, int], chief_ip: str | None, port_offset: int) -> dict[str, dict[str, Seconds]]:
    """Run one worker, and return what it measured, by case and way."""
    between_hosts = place["cross_size"] > 1
    context = DistributedContext(**place, chief_ip=chief_ip, port_offset=port_offset)
    ways = {True: context, False: context}
    if between_hosts:
        ring, RingCollectives.allgather = RingCollectives.allgather, HubCollectives.allgather  # type: ignore[method-assign]
        ways[False] = context.channel()
        RingCollectives.allgather = ring  # type: ignore[method-assign]
    found: dict[str, dict[str, Seconds]] = {}
    for size, calls in (BETWEEN_HOSTS if between_hosts else WITHIN_HOST).items():
        payload = os.urandom(size)
        for op in ("allgather",) if between_hosts else ("allgather", "gather", "broadcast"):
            case = found[f"{op} {size:,}"] = {"with": [], "without": []}
            for number in range(ROUNDS):
                for is_with in (True, False) if number % 2 else (False, True):
                    if not between_hosts:
                        _link.CAN_SHARE = _payload.CAN_SHARE = is_with  # type: ignore[misc]
                    case["with" if is_with else "without"].append(
                        measure(context, getattr(ways[is_with], op), payload, calls)
                    )
    everybody = context.allgather(found)
    context.close()
    for name, case in found.items():
        for way, rounds in case.items():
            for number, (seconds, _) in enumerate(rounds):
                rounds[number] = (seconds, sum(each[name][way][number][1] for each in everybody))
    return found


def measure(context: DistributedContext, call: Callable[[Any], Any], payload: bytes, calls: int) -> tuple[float, float]:
    context.allgather(None)
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        call(payload)
    context.allgather(None)
    return (time.perf_counter() - start) / calls, (time.process_time() - cpu) / calls


def compare(title: str, machines: tuple[int, ...], inside: Callable[[int], list[str]], chief_ip: str | None) -> None:
    """Run one job, and print the ratios of the times without to those with, as medians over the rounds."""
    environ = {**os.environ, "TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "OMP_NUM_THREADS": "1", "DET_COMM_KEY": KEY}
    workers = [
        subprocess.Popen(
            [
                *inside(place["cross_rank"]),
                sys.executable,
                __file__,
                json.dumps([place, chief_ip, os.getpid() % 10_000]),
            ],
            env=environ,
            stdout=subprocess.DEVNULL if place["rank"] else subprocess.PIPE,
        )
        for place in layout(machines)
    ]
    output = workers[0].communicate()[0]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        raise SystemExit(f"the job on {machines} failed")
    for case, ways in json.loads(output).items():
        time_, cpu = (
            statistics.median(without[at] / max(1e-9, with_[at]) for with_, without in zip(*ways.values(), strict=True))
            for at in (0, 1)
        )
        typical = 1e3 * statistics.median(seconds for seconds, _ in ways["with"])
        print(f"{title:34}{case:22}{typical:10.2f}{time_:8.2f}{cpu:8.2f}", flush=True)


def layout(machines: tuple[int, ...]) -> Iterator[dict[str, int]]:
    """Yield the place of each worker, from the number of workers of each machine."""
    for machine, workers in enumerate(machines):
        for local in range(workers):
            yield {
                "rank": sum(machines[:machine]) + local,
                "size": sum(machines),
                "local_rank": local,
                "local_size": workers,
                "cross_rank": machine,
                "cross_size": len(machines),
            }


@contextmanager
def hosts(count: int, rate: str) -> Iterator[Callable[[int], list[str]]]:
    """Create network namespaces that a bridge connects, and yield a function of the command to enter one."""
    name = f"d{uuid.uuid4().hex[:6]}"

    def run(command: str) -> None:
        subprocess.run(command.split(), check=True, capture_output=True)

    limit = f"root tbf rate {rate} burst 128kb latency 20ms"
    run(f"ip link add {name}b type bridge")
    try:
        run(f"ip link set {name}b up")
        for machine in range(count):
            namespace, wire = f"{name}-{machine}", f"{name}{machine}"
            run(f"ip netns add {namespace}")
            run(f"ip link add {wire} type veth peer name eth0 netns {namespace}")
            run(f"ip link set {wire} master {name}b up")
            run(f"ip -n {namespace} address add {SUBNET}.{machine + 1}/24 dev eth0")
            run(f"ip -n {namespace} link set eth0 up")
            run(f"ip -n {namespace} link set lo up")
            run(f"tc -n {namespace} qdisc add dev eth0 {limit}")
            run(f"tc qdisc add dev {wire} {limit}")
        yield lambda machine: ["ip", "netns", "exec", f"{name}-{machine}"]
    finally:
        for machine in range(count):
            for command in (f"ip link delete {name}{machine}", f"ip netns delete {name}-{machine}"):
                subprocess.run(command.split(), capture_output=True)
        run(f"ip link delete {name}b")


def main() -> None:
    print(f"{'':34}{'payload in bytes':22}{'with, ms':>10}{'without':>8}{'CPU':>8}")
    for workers in ONE_HOST:
        compare(f"files, {workers} workers", (workers,), lambda machine: [], None)
    if os.getuid() or not shutil.which("tc"):
        print("the ring was not measured: network namespaces need root and iproute2")
        return
    for rate in RATES:
        for machines in MACHINES:
            with hosts(len(machines), rate) as inside:
                compare(f"ring, {machines} at {rate}", machines, inside, f"{SUBNET}.1")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(work(*json.loads(sys.argv[1]))))
    else:
        main()
