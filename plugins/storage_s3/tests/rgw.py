"""Temporary S3 server for tests and benchmarks, which is Ceph's RADOS gateway on loopback.

with rgw() as server:
    server.client().create_bucket(Bucket="b")
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.comm.job import free_port

PACKAGES = "radosgw ceph-mon ceph-mgr ceph-osd ceph-common"
_PROGRAMS = ("ceph", "ceph-authtool", "ceph-mgr", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_CAPS = {
    "mgr.x": ("mon", "allow profile mgr", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"),
    "client.rgw.a": ("mon", "allow rwx", "osd", "allow rwx"),
}
_CONF = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}]
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {directory}/$cluster.keyring.$name
run dir = {directory}/run
admin socket = {directory}/run/$name.asok
log file = {directory}/log/$name.log
pid file = {directory}/run/$name.pid
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
ms bind ipv6 = false
public network = 127.0.0.0/8
[mon.a]
mon data = {directory}/mon
mon data avail crit = 1
[mgr.x]
mgr data = {directory}/mgr
mgr initial modules =
[osd.0]
osd data = {directory}/osd
osd objectstore = {objectstore}
memstore device bytes = {size}
bluestore block size = {size}
osd memory target = 939524096
[client.rgw.a]
rgw data = {directory}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw enable usage log = false
rgw gc obj min wait = 1
rgw gc processor period = 2
rgw gc processor max time = 2
rgw thread pool size = 64
"""


@dataclass(frozen=True)
class Server:
    """Running server and the keys of its first user."""

    endpoint: str
    access_key: str
    secret_key: str
    directory: Path

    def client(self, **options: Any) -> Any:
        """Return a plain boto3 client with the keys of the first user, unless ``options`` contain others."""
        import boto3

        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        where = {"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        return boto3.session.Session().client("s3", **{**keys, **where, **options})

    def add_user(self, name: str, access_key: str, secret_key: str) -> None:
        """Create a user without access to the buckets of others."""
        keys = [f"--access-key={access_key}", f"--secret-key={secret_key}"]
        _run(self.directory, "radosgw-admin", "-n", "client.rgw.a", "user", "create", f"--uid={name}",
             f"--display-name={name}", *keys)  # fmt: skip


def missing() -> str:
    """Return why no server can be started here, or an empty string if one can."""
    absent = [program for program in _PROGRAMS if not shutil.which(program)]
    return f"no {', '.join(absent)}; type: apt-get install --no-install-recommends {PACKAGES}" if absent else ""


@contextlib.contextmanager
def rgw(objectstore: str = "memstore", size: int = 4 << 30) -> Iterator[Server]:
    """Start a new server (about 15 s, 700 MB of memory), stop it at the end and delete its data.

    Args:
        objectstore: ``memstore``, or ``bluestore`` on a sparse file under the temporary directory.
        size: size of the store in bytes.
    """
    directory = Path(tempfile.mkdtemp(prefix="det-rgw-"))
    port, daemons = free_port(), contextlib.ExitStack()
    try:
        with daemons:
            _cluster(directory, daemons, port=port, objectstore=objectstore, size=size)
            _daemon(directory, daemons, "radosgw", "-n", "client.rgw.a")
            _wait("radosgw to listen", lambda: socket.create_connection(("127.0.0.1", port), 1).close() or True)
            server = Server(f"http://127.0.0.1:{port}", f"AKID{uuid.uuid4().hex[:12]}", uuid.uuid4().hex, directory)
            server.add_user("det", server.access_key, server.secret_key)
            yield server
    finally:
        shutil.rmtree(directory)


def _cluster(directory: Path, daemons: contextlib.ExitStack, **settings: Any) -> None:
    """Start a cluster of one monitor, one manager and one disk."""
    for name in ("mon", "mgr", "osd", "run", "log", "rgw"):
        (directory / name).mkdir()
    fsid, mon_port = str(uuid.uuid4()), free_port()
    conf = _CONF.format(fsid=fsid, mon_port=mon_port, directory=directory, **settings)
    (directory / "ceph.conf").write_text(conf)
    mon_key, admin = directory / "mon.key", directory / "ceph.keyring.client.admin"
    everything = ["--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *"]
    monmap = directory / "monmap"
    _run(directory, "monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{mon_port}]", "--fsid", fsid, monmap)
    _run(directory, "ceph-authtool", "-C", mon_key, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    _run(directory, "ceph-authtool", "-C", admin, "--gen-key", "-n", "client.admin", *everything)
    _run(directory, "ceph-authtool", mon_key, "--import-keyring", admin)
    _run(directory, "ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", mon_key)
    _daemon(directory, daemons, "ceph-mon", "-i", "a")
    for name, caps in _CAPS.items():
        _run(directory, "ceph", "auth", "get-or-create", name, *caps, "-o", directory / f"ceph.keyring.{name}")
    _daemon(directory, daemons, "ceph-mgr", "-i", "x")
    osd = str(uuid.uuid4())
    _run(directory, "ceph", "osd", "new", osd)
    _run(directory, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
    _daemon(directory, daemons, "ceph-osd", "-i", "0")
    _wait("the disk to be up", lambda: json.loads(_run(directory, "ceph", "osd", "stat", "-f", "json"))["num_up_osds"])


def _run(directory: Path, program: str, *arguments: object) -> str:
    conf = ["-c", directory / "ceph.conf"] if program not in ("ceph-authtool", "monmaptool") else []
    command = [program, *map(str, (*conf, *arguments))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-1000:]}")
    return done.stdout


def _daemon(directory: Path, daemons: contextlib.ExitStack, *command: str) -> None:
    """Start a daemon as a child process, which ``daemons`` kills at the end."""
    output = (directory / "log" / f"{command[0]}.out").open("wb")
    process = subprocess.Popen(
        [*command, "-f", "-c", str(directory / "ceph.conf")],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
    )  # fmt: skip
    output.close()
    daemons.callback(process.wait, 30)
    daemons.callback(process.kill)  # a clean shutdown is not needed, as the data is deleted


def _wait(what: str, condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ConnectionError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.1)
