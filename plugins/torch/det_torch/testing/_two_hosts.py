"""Tests on two hosts, simulated by network namespaces with their own names, addresses and hosts files.

In each hosts file the host's own name resolves to loopback, as on Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci
from det_testing.trial_job import NodeLaunch

from det_torch.testing._suite import AdapterSuite
from det_torch.testing.jobs import ONE_MODEL, Jobs

_ADDRESSES = ("10.213.78.1", "10.213.78.2")
_PORT = 29500  # always free, because each namespace has its own ports
_ENTER = 'mount --bind "$1" /etc/hosts && hostname "$0" && shift && exec "$@"'


class TwoHostsSuite(AdapterSuite):
    """Tests of slots on several hosts."""

    @pytest.mark.integration
    @pytest.mark.slow
    def test_two_hosts(self, jobs: Jobs, tmp_path: Path) -> None:
        """Train the same with one slot on each of two hosts as with two slots on one host."""
        if not self.hosts:
            pytest.skip("hosts is False")
        job, on_one_host = jobs.make(ONE_MODEL), jobs.undisturbed(ONE_MODEL, 2)
        with _two_hosts(tmp_path) as nodes:
            job.start(1, nodes=nodes).ended()
        self.assert_same(job, on_one_host.ended())


@contextmanager
def _two_hosts(directory: Path) -> Iterator[list[NodeLaunch]]:
    """Set up two hosts with a shared file system and a network link, and yield how to launch on each."""
    missing = [program for program in ("ip", "unshare") if not shutil.which(program)]
    if os.getuid() != 0 or missing:
        skip_or_fail_in_ci(
            f"the network namespaces of two hosts need root, iproute2 and util-linux; missing programs: {missing}"
        )
    names = [f"det-{uuid.uuid4().hex[:6]}" for _ in _ADDRESSES]
    addresses = {"localhost": "127.0.0.1", **dict(zip(names, _ADDRESSES, strict=True))}
    for own in names:
        hosts = {**addresses, own: "127.0.1.1"}
        (directory / own).write_text(
            "".join(f"{address} {name}\n" for name, address in hosts.items()), encoding="utf-8"
        )
    enter = ["unshare", "--mount", "--uts", "sh", "-c", _ENTER]
    try:
        _join(names)
        yield [
            NodeLaunch(
                prefix=["ip", "netns", "exec", name, *enter, name, str(directory / name)],
                arguments=[f"--hosts={','.join(names)}", f"--node={index}", f"--port={_PORT}"],
            )
            for index, name in enumerate(names)
        ]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _join(names: list[str]) -> None:
    first, second = names
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        for name, address in zip(names, _ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this kernel or container cannot connect network namespaces: {error.stderr.strip()}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, encoding="utf-8")
