"""Hosts behind ssh for tests: real servers on loopback, as children of this process, with keys of their own.

with ssh_hosts(directory, site, "one", "two") as hosts:
    subprocess.run(["ssh", f"-F{hosts.client_config}", "one", "hostname"])
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from det_core.launch.network import find_adjacent_free_ports
from tests.waiting import wait_for

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_NO_LOGIN = ("nologin", "false")
_PRIVILEGES = Path("/run/sshd")
"""Empty directory that a server of root needs. The start script of the system creates it."""
_SECONDS = 30.0
_SERVER = """\
ListenAddress 127.0.0.1:{port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
AuthenticationMethods publickey
AllowUsers {user}
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
PidFile none
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv DET_HOME={home} PYTHONPATH={site}
"""
_CLIENT = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {directory}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {directory}/known_hosts
    GlobalKnownHostsFile none
"""


@dataclass
class SshHosts:
    """Running servers, by the names that the client has for them."""

    directory: Path
    site: Path
    servers: dict[str, psutil.Popen] = field(default_factory=dict)

    @property
    def client_config(self) -> Path:
        """The config file of the client."""
        return self.directory / "client"

    @property
    def authorized_keys(self) -> Path:
        """The file with the keys that all servers accept."""
        return self.directory / "authorized_keys"

    def kill_connections(self, name: str) -> None:
        """Kill the processes of a server that serve connections."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in self.servers[name].children(recursive=True):
                if one.name().startswith("sshd"):
                    one.kill()

    def kill_server(self, name: str) -> None:
        """Kill the process that takes connections."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.servers[name].kill()
        self.servers[name].wait(_SECONDS)

    def add_host(self, name: str) -> None:
        """Start a server."""
        port = find_adjacent_free_ports()
        values = {"name": name, "port": port, "user": getpass.getuser(), "directory": self.directory}
        values |= {"home": self.directory / name, "site": self.site}
        config = self.directory / f"{name}.conf"
        config.write_text(_SERVER.format(**values))
        with self.client_config.open("a") as client, (self.directory / "known_hosts").open("a") as known:
            client.write(_CLIENT.format(**values))
            known.write(f"[127.0.0.1]:{port} {(self.directory / 'host_key.pub').read_text()}")
        program = shutil.which("sshd", path=_PATH)
        with (self.directory / f"{name}.log").open("w") as log:
            self.servers[name] = psutil.Popen([program, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log)
        wait_for(lambda: _is_open(port), _SECONDS)


def missing() -> str | None:
    """Return what is missing for servers on this machine, or None."""
    lacking = [name for name in ("ssh", "sshd", "ssh-keygen") if not shutil.which(name, path=_PATH)]
    if lacking:
        return f"no {', '.join(lacking)}; to test, run as root: make debian"
    shell = pwd.getpwuid(os.getuid()).pw_shell  # the servers start it
    return f"this user may not log in: its shell is {shell}" if shell.endswith(_NO_LOGIN) else None


@contextlib.contextmanager
def ssh_hosts(directory: Path, site: Path, *names: str) -> Iterator[SshHosts]:
    """Run servers while the block runs.

    Args:
        directory: empty directory for their files.
        site: directory with further Python packages of the hosts.
        names: names of the hosts. Each has a DET_HOME of its own.
    """
    with contextlib.ExitStack() as ending:
        for key in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key]
            subprocess.run(command, check=True, timeout=_SECONDS)
        if os.getuid() == 0 and not _PRIVILEGES.is_dir():
            _PRIVILEGES.mkdir(mode=0o755)
        hosts = SshHosts(directory, site)
        hosts.authorized_keys.write_text((directory / "user_key.pub").read_text())
        ending.callback(_stop, hosts)
        for name in names:
            hosts.add_host(name)
        yield hosts


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _SECONDS).close()
    except OSError:
        return False
    return True


def _stop(hosts: SshHosts) -> None:
    for name in hosts.servers:
        hosts.kill_connections(name)
        hosts.kill_server(name)
