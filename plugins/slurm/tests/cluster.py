"""Slurm cluster for tests and benchmarks: real daemons on loopback, with all nodes on this machine.

with slurm_cluster() as cluster:
    cluster.run("sinfo")
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

PACKAGES = "slurm-wlm munge"
_CLONE_NEWUTS = 0x04000000
_HOST = "localhost"
_PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
_SECONDS = 60.0
_PARTS = ("srun --job-name=det-", "agent_program", "main.py", "_guard.py", "_srun_withdrawer.py")
"""Parts of the command lines of processes of launches."""
_CONF = """\
ClusterName=det
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.log
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldPort={ports[0]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdParameters=config_overrides
MessageTimeout=30
SlurmdTimeout=20
ReturnToService=2
MpiDefault=none
GresTypes=gpu
{more}
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=2 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
PartitionName=one Nodes=n1 MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
PartitionName=low Nodes=ALL MaxTime=60 PriorityTier=1 PreemptMode=CANCEL GraceTime=5
"""


@dataclass
class Cluster:
    """Running cluster with the nodes n1 and n2, each of two cores and two pretended GPUs."""

    directory: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of Slurm's programs."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def run(self, *command: str) -> str:
        """Run a program of Slurm and return its output."""
        ran = subprocess.run(
            command, env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=_SECONDS
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def start(self, name: str, *command: str) -> None:
        """Start a daemon in the foreground, as a child of this process."""
        with (self.directory / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                command, env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def start_node(self, name: str) -> None:
        """Start the daemon of a node, which sees an empty directory as ``private``."""
        private = self.directory / "private"
        command = f"mount -t tmpfs tmpfs {private} 2>/dev/null; exec slurmd -D -N {name}"
        self.start(name, "unshare", "--mount", "sh", "-c", command)

    def kill(self, name: str) -> None:
        """Kill a daemon."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def select(self, patch: pytest.MonkeyPatch) -> None:
        """Let the programs of Slurm that this process starts use this cluster, and no allocation."""
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            patch.delenv(name)
        for name, value in self.variables.items():
            patch.setenv(name, value)

    def left_behind(self) -> list[str]:
        """Return the command lines of processes of launches in this cluster."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if any(part in line for part in _PARTS) and process.environ().items() >= self.variables.items():
                    found.append(line)
        return found

    def wait_idle(self) -> None:
        """Wait until no job and no process of a launch is left, and all nodes can run jobs."""
        self.wait_for(lambda: not self.run("squeue", "--noheader").strip(), "an empty queue")
        self.wait_for(lambda: not self.left_behind(), "end of all processes")
        self.wait_for(lambda: set(self.run("sinfo", "-N", "-h", "-p", "main", "-o", "%t").split()) == {"idle"}, "idle")

    def describe(self) -> str:
        """Return the jobs, nodes and processes, for errors."""
        parts = [str(self.left_behind())]
        for command in (("squeue",), ("sinfo", "-N", "-l")):
            try:
                parts.append(self.run(*command))
            except (AssertionError, subprocess.TimeoutExpired) as problem:
                parts.append(str(problem))
        return "\n".join(parts)

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = _SECONDS) -> None:
        """Wait until a condition is true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"no {what}: {self.describe()}"
            time.sleep(0.05)


def missing() -> str | None:
    """Return what is missing for a cluster on this machine, or None."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if lacking := [name for name in _PROGRAMS if not shutil.which(name, path=path)]:
        return f"no {', '.join(lacking)}; to test, run as root: apt-get install {PACKAGES}"
    if os.getuid() != 0:
        return "slurmd needs root"
    return None


@contextlib.contextmanager
def resolvable_host_name() -> Iterator[None]:
    """Give this thread, its later threads and child processes the host name of loopback while the block runs.

    Slurm looks up the name of its host, which need not have an address where the tests run.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/uts", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWUTS):
            raise OSError(ctypes.get_errno(), "cannot create a namespace for a host name")
        socket.sethostname(_HOST)
        yield
    finally:
        libc.setns(before, _CLONE_NEWUTS)
        os.close(before)


@contextlib.contextmanager
def slurm_cluster(*, more: str = "") -> Iterator[Cluster]:
    """Run a cluster while the block runs.

    Args:
        more: further lines of the configuration.
    """
    with (
        resolvable_host_name(),
        tempfile.TemporaryDirectory(prefix="slurm-") as name,
        contextlib.ExitStack() as ending,
    ):
        directory = Path(name)
        directory.chmod(0o755)
        cluster = Cluster(directory)
        ending.callback(_stop, cluster)
        for part in ("spool", "state", "munge", "private"):
            (directory / part).mkdir(mode=0o700 if part == "munge" else 0o755)
        (directory / "private" / "of-the-login-node").touch()
        conf = _CONF.format(host=_HOST, directory=directory, ports=_ports(), more=more)
        (directory / "slurm.conf").write_text(conf)
        for index in range(2):
            os.mknod(directory / f"gpu{index}", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n")
        (directory / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={directory}/gpu[0-1]\n")
        munge = directory / "munge"
        subprocess.run(["mungekey", "--create", f"--keyfile={munge}/key"], check=True, timeout=_SECONDS)
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge}/{file}" for option, file in files.items()]
        cluster.start("munged", "munged", "--foreground", "--force", *options)
        cluster.wait_for((munge / "socket").exists, "munged")
        cluster.start("slurmctld", "slurmctld", "-D", "-c", "-i")
        for node in ("n1", "n2"):
            cluster.start_node(node)
        cluster.wait_for(lambda: _answers(cluster), "slurmctld")
        cluster.wait_idle()
        yield cluster


def _answers(cluster: Cluster) -> bool:
    with contextlib.suppress(AssertionError):
        return "UP" in cluster.run("scontrol", "ping")
    return False


def _stop(cluster: Cluster) -> None:
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        cluster.run("scancel", "--user=root", "--signal=KILL")
        cluster.run("scancel", "--user=root")
        cluster.wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), "an empty queue")
    for name in ("n1", "n2", "slurmctld", "munged"):
        if daemon := cluster.daemons.get(name):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
    for directory in Path("/sys/fs/cgroup/memory").glob("slurm_n[12]"):  # slurmd leaves it
        with contextlib.suppress(OSError):  # another cluster on this machine uses it
            directory.rmdir()


def _ports() -> list[int]:
    """Return three adjacent free ports. The kernel gives larger ones to outgoing connections of other tests."""
    while True:
        first = random.randrange(10_000, 16_000)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in (ports := [first, first + 1, first + 2]):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return ports
