"""A second machine with a network and file systems of its own: namespaces of Linux, joined by a virtual cable."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from det_server._access import AccountAccess
from det_server._passwords import hash_password

from det_core.interfaces.account_records import Role, TokenScope
from det_core.tracking import open_store

from .serving import LIMIT, PASSWORD, running_server, write_certificate

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))),
        reason="network namespaces need root, ip and unshare",
    ),
]

HERE, THERE = "10.213.79.1", "10.213.79.2"
HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
"""Shell script that hides a directory from a command."""
SCRIPT = """\
from det_core import core
with core.init() as context:
    for step in (1, 2, 3):
        context.train.report_validation_metrics(steps_completed=step, metrics={"loss": abs(step - 2)})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            (path / "model").write_text(str(step))
"""
CONFIG = {
    "name": "far",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 3}},
    "max_restarts": 0,
}
Det = Callable[..., str]


@pytest.fixture
def namespace() -> Iterator[str]:
    """Create a network namespace that reaches this one at the address `HERE`, and return its name."""
    name, near, far = (f"{prefix}{os.getpid()}" for prefix in ("det-", "detn", "detf"))
    steps = [
        f"netns add {name}",
        f"link add {near} type veth peer name {far} netns {name}",
        f"address add {HERE}/30 dev {near}",
        f"link set {near} up",
        f"-netns {name} address add {THERE}/30 dev {far}",
        f"-netns {name} link set {far} up",
    ]
    try:
        for step in steps:
            made = subprocess.run(["ip", *step.split()], capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"ip {step}: {made.stderr.strip()}")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)  # and with it the cable


@pytest.fixture
def server_home(tmp_path: Path) -> Path:
    return tmp_path / "server"


@pytest.fixture
def det(namespace: str, server_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Det]:
    """Run a server on this machine, and return a function that runs a command of ann on the other one."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(cert, key, days=2, address=HERE)
    server_home.mkdir()
    with open_store(f"sqlite:///{server_home}/det.db") as store:
        for user, role in (("root", Role.ADMIN), ("ann", Role.USER)):
            store.create_user(user, role=role, password=hash_password(PASSWORD))
        token = AccountAccess(store).create_api_token("ann", TokenScope.WRITE, "laptop", None)
    options = ("--host", HERE, "--users", "--tls-cert", str(cert), "--tls-key", str(key))
    with running_server(*options, home=server_home) as server:
        port = server.link.rpartition(":")[2]
        variables = {"DET_HOME": str(tmp_path / "laptop"), "DET_TOKEN": token, "DET_MASTER_CERT_FILE": str(cert)}
        environment = {**os.environ, **variables, "DET_MASTER": f"https://{HERE}:{port}"}
        machine = ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", HIDE, str(server_home)]

        def run(*words: str) -> str:
            ended = subprocess.run(
                [*machine, sys.executable, "-m", "det_core.cli", *words],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=2 * LIMIT,
                check=False,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout

        yield run


def test_an_experiment_is_submitted_watched_downloaded_and_deleted_from_a_second_machine(
    det: Det, server_home: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    (code / "const.yaml").write_text(json.dumps(CONFIG))
    summary = det("experiment", "create", "code/const.yaml", "code", "--follow")
    assert "Experiment 1 completed" in summary
    (listed,) = json.loads(det("experiment", "list", "--json"))
    assert (listed["state"], listed["owner"]) == ("COMPLETED", "ann")

    storage = server_home / "checkpoints"
    assert re.search(rf"in {storage}/\S+ on https://{HERE}:", summary)
    hint = re.search(r"to get it: det (.*)", summary)
    assert hint, summary
    words = shlex.split(hint[1])
    uuid = words[-1]
    det(*words)
    assert (tmp_path / "checkpoints" / uuid / "model").read_text() == "2"

    assert f"on https://{HERE}:" in det("checkpoint", "describe", uuid)
    assert det("checkpoint", "rm", uuid, "--yes") == f"Checkpoint {uuid}: nothing left\n"
    assert not (storage / uuid).exists()
    assert "Deleted experiment 1" in det("experiment", "delete", "1", "--yes")
    assert [path for path in storage.rglob("*") if path.is_file()] == []
    assert json.loads(det("experiment", "list", "--json")) == []
