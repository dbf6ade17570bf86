"""Speed of det, boto3 in a loop, the AWS command line and obstore with checkpoints on a real S3 server.

The server is Ceph's gateway on loopback, so it shares the processors with its clients. Each measurement is a whole
process, including the start of the interpreter and imports. In each round, all cases run once. obstore is written in
Rust, sends no checksums and verifies no downloads, so its speed is the limit. A speed of 0.5 is half of it. Speeds are
medians over the rounds. On a busy machine, only the second ratio is meaningful. It compares the CPU time of client and
server together, each at its minimum. The shapes are those of awslabs/aws-crt-s3-benchmarks, with names in its style.

    python benchmarks/object_store.py [SHAPE ...]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from environments import programs

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "storage_s3" / "tests"))
from det_testing.proxy import FaultyProxy
from rgw import Server, rgw

BUCKET = "benchmark"
DELAY = 0.020
"""Seconds that the proxy adds to each response."""
PIECE = 1 << 20


@dataclass(frozen=True)
class Shape:
    """Checkpoint of ``count`` files of ``size`` bytes. ``goal`` is det's minimum speed as a fraction of obstore's."""

    count: int
    size: int
    rounds: int = 3
    delay: float = 0.0
    goal: float | None = None


SHAPES = {
    "1KiB-1000x-20ms": Shape(1000, 1 << 10, delay=DELAY),
    "1KiB-1000x": Shape(1000, 1 << 10, goal=0.5),
    "1MiB-100x": Shape(100, 1 << 20, goal=0.5),
    "1GiB-1x": Shape(1, 1 << 30),
    "2GiB-1x": Shape(1, 2 << 30, rounds=1),
    "256KiB-10_000x": Shape(10_000, 256 << 10, rounds=1),
}
USUAL = ("1KiB-1000x-20ms", "1KiB-1000x", "1MiB-100x", "1GiB-1x")

DET = """
import os, sys
from pathlib import Path
from det_core import storage
from det_storage_s3._config import S3Config
verb, bucket, name, directory = sys.argv[1:]
config = S3Config(bucket=bucket, endpoint_url=os.environ["AWS_ENDPOINT_URL"])
manager = storage.open_storage("s3", config)
if verb == "up":
    storage.save_checkpoint(manager, name, storage.scan_directory(Path(directory)), {})
else:
    storage.restore_checkpoint(manager, name, Path(directory))
"""
LOOP = """
import os, sys
import boto3
verb, bucket, name, directory = sys.argv[1:]
client = boto3.client("s3")
if verb == "up":
    for path in sorted(os.listdir(directory)):
        client.upload_file(os.path.join(directory, path), bucket, f"{name}/{path}")
else:
    os.makedirs(directory)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=name + "/"):
        for each in page["Contents"]:
            client.download_file(bucket, each["Key"], os.path.join(directory, each["Key"].rpartition("/")[2]))
"""
OBSTORE = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import obstore
from obstore.store import S3Store
verb, bucket, name, directory = sys.argv[1:]
store = S3Store(bucket, endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True},
                virtual_hosted_style_request=False)
def up(path):
    obstore.put(store, f"{name}/{path.name}", path)
def down(key):
    with Path(directory, key.rpartition("/")[2]).open("wb") as file:
        for chunk in obstore.get(store, key).stream():
            file.write(chunk)
with ThreadPoolExecutor(16) as pool:
    if verb == "up":
        list(pool.map(up, Path(directory).iterdir()))
    else:
        Path(directory).mkdir()
        list(pool.map(down, [each["path"] for page in obstore.list(store, name) for each in page]))
"""


def commands(verb: str, name: str, directory: Path) -> dict[str, list[str]]:
    stores = programs("stores")
    url = f"s3://{BUCKET}/{name}"
    arguments = [verb, BUCKET, name, str(directory)]
    pair = [str(directory), url] if verb == "up" else [url, str(directory)]
    return {
        "det": [sys.executable, "-c", DET, *arguments],
        "boto3 in a loop": [sys.executable, "-c", LOOP, *arguments],
        "aws s3 cp --recursive": [str(stores / "aws"), "s3", "cp", "--recursive", "--only-show-errors", *pair],
        "obstore": [str(stores / "python"), "-c", OBSTORE, *arguments],
    }


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds of a process, CPU seconds of the process and of the server, and peak memory in MiB."""

    wall: float
    client: float
    server: float
    memory: float

    @property
    def processor(self) -> float:
        return self.client + self.server


def measured(command: list[str], environment: dict[str, str]) -> Cost:
    began, server = time.perf_counter(), server_time()
    process = subprocess.Popen(command, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed")
    wall, server = time.perf_counter() - began, server_time() - server
    return Cost(wall, used.ru_utime + used.ru_stime, server, used.ru_maxrss / 1024)


def server_time() -> float:
    """Return the CPU seconds of this process's children, which are the server's daemons."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())


def measure(shape: Shape, server: Server, scratch: Path) -> None:
    source = scratch / "source"
    source.mkdir()
    for number in range(shape.count):
        with (source / f"file-{number}").open("wb") as file:
            for left in range(shape.size, 0, -PIECE):  # in pieces, as a child's peak memory includes its parent's
                file.write(os.urandom(min(left, PIECE)))
    with address(server, shape.delay) as endpoint:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        costs: dict[str, dict[str, list[Cost]]] = {"up": {}, "down": {}}
        for _ in range(shape.rounds):
            for case in commands("up", "", scratch):
                name, target = str(uuid.uuid4()), scratch / "target"
                for verb, directory in (("up", source), ("down", target)):
                    os.sync()
                    command = commands(verb, name, directory)[case]
                    costs[verb].setdefault(case, []).append(measured(command, environment))
                check(source, target)
                subprocess.run(["rm", "-r", target], check=True)
                empty(server, name)
    for verb, cases in costs.items():
        show(verb, cases, shape.goal)


def show(verb: str, cases: dict[str, list[Cost]], goal: float | None) -> None:
    limit = cases["obstore"]
    print(f"  {verb:24}{'s':>8}{'speed':>8}{'CPU ratio':>11}{'client s':>10}{'server s':>10}{'peak MiB':>10}  goal")
    for case, found in cases.items():
        speed = statistics.median(best.wall / cost.wall for best, cost in zip(limit, found, strict=True))
        ratio = min(cost.processor for cost in limit) / min(cost.processor for cost in found)
        wall, client, server = (
            statistics.median(getattr(cost, name) for cost in found) for name in ("wall", "client", "server")
        )
        memory = max(cost.memory for cost in found)
        wanted = f">= {goal}" if goal and case == "det" else ""
        print(
            f"    {case:22}{wall:8.2f}{speed:8.2f}{ratio:11.2f}{client:10.2f}{server:10.2f}{memory:10.0f}  {wanted}",
            flush=True,
        )


def check(source: Path, target: Path) -> None:
    for path in source.iterdir():
        if (target / path.name).stat().st_size != path.stat().st_size:
            raise SystemExit(f"{target / path.name} does not have the size of the stored file")


def empty(server: Server, name: str) -> None:
    client = server.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=name):
        keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
        client.delete_objects(Bucket=BUCKET, Delete={"Objects": keys})


@contextmanager
def address(server: Server, delay: float) -> Iterator[str]:
    """Yield the address of the server, or of a proxy before it that delays each response by ``delay`` seconds."""
    if not delay:
        yield server.endpoint
        return
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    proxy = FaultyProxy(host, int(port), delay=delay)
    try:
        yield f"http://127.0.0.1:{proxy.port}"
    finally:
        proxy.close()


def main() -> None:
    chosen: Callable[[str], Shape] = SHAPES.__getitem__
    with rgw(size=10 << 30) as server:
        server.client().create_bucket(Bucket=BUCKET)
        for name in sys.argv[1:] or USUAL:
            print(name)
            with tempfile.TemporaryDirectory() as scratch:
                measure(chosen(name), server, Path(scratch))


if __name__ == "__main__":
    main()
