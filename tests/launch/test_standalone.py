"""Command line ``python -m det_core.launch``, and the errors of its users."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from det_core.launch import _node
from det_core.launch._worker_environment.free_ports import find_adjacent_free_ports, reserve_free_ports
from det_core.package_commands import package_command
from det_core.testing._plugin_metadata import write_plugin_metadata

pytestmark = pytest.mark.integration

RING = Path(__file__).parents[2] / "examples" / "backend_plugin"
Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run the command with the ring backend installed, and a script given as text."""
    site = tmp_path / "site"
    write_plugin_metadata(site, "det-ring")

    def start(*arguments: str, script: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "train.py").write_text(script)
        path = os.pathsep.join([str(site), str(RING)])
        command = [sys.executable, "-m", "det_core.launch", *arguments, "--", "train.py"]
        environment = {**os.environ, "PYTHONPATH": path, **env}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)

    return start


NODES = ("--hosts=127.0.0.1,127.0.0.2",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rink",), "did you mean 'ring'?"),
        (("ring", "--option=grade=1"), "did you mean 'grace'?"),
        (("ring", "--option=grace=-1"), "distributed: grace: got -1; expected 0.0 or more"),
        (("ring", "--option=grace"), "--option grace: expected KEY=VALUE"),
        (("ring", "--option=grace=[1"), "--option grace=[1:1: not valid YAML"),
        (("ring", "--slots=0"), "expected 1 or more"),
        (("ring", *NODES, "--node=2", "--port=1"), "expected an index into 127.0.0.1, 127.0.0.2"),
        (("ring", *NODES, "--port=1"), "the index of this node is missing"),
        (("ring", "--port=65535"), "expected 1 to 65534"),
        (("ring", *NODES, "--node=0"), "give the same --port P"),
        (("ring", *NODES, "--node=0", "--port=1"), "set DET_COMM_KEY to the same"),
    ],
)
def test_a_wrong_command_line_is_reported(start: Start, arguments: tuple[str, ...], words: str) -> None:
    ran = start(*arguments)
    assert ran.returncode != 0
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_node_without_the_library_for_tls_says_so_before_workers_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.modules['cryptography'] = None")
    ran = start("ring", *NODES, "--node=1", "--port=1", DET_COMM_KEY="k" * 64)
    (line,) = ran.stderr.splitlines()
    assert line == (
        "det: the workers failed: encrypted connections between hosts need cryptography, which is not installed; "
        f"type: {package_command('install', 'det-core[tls]')}"
    )
    assert ran.returncode != 0
    assert (
        start("ring", "--slots=2", script="print('started')").stdout.count("started") == 2
    )  # a single node needs none


def test_cores_are_shared_among_workers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ran = start("ring", "--slots=2", script="import os; print(os.environ['OMP_NUM_THREADS'])")
    expected = max(1, len(os.sched_getaffinity(0)) // 2)
    assert sorted(ran.stdout.splitlines()) == [f"[rank={rank}] {expected}" for rank in (0, 1)]


FAILS = """
import os, sys, time
from det_core.launch import _failure_notes, backends
workers = backends.connect_workers()
if workers.rank == 1:
    _failure_notes.write_failure_note(1, 78, "InvalidTrial: no such thing")
    {then}
time.sleep(1000)
"""


def test_the_failure_note_of_a_worker_is_reported(start: Start) -> None:
    ran = start("ring", "--slots=2", script=FAILS.format(then="sys.exit(1)"))
    assert ran.returncode == 78
    assert ran.stderr.splitlines()[-1] == "det: the workers failed: rank 1: InvalidTrial: no such thing"


@pytest.mark.slow
def test_a_launcher_that_does_not_end_is_killed_in_time(start: Start) -> None:
    began = time.monotonic()
    ran = start("ring", "--slots=2", script=FAILS.format(then="pass"))
    assert ran.returncode == 78
    assert _node.FAILURE_GRACE < time.monotonic() - began < _node.FAILURE_GRACE + 20


def test_nodes_with_different_keys_end_with_one_line_each(start: Start) -> None:
    """The nodes end in seconds, although workers wait for each other for ten minutes."""
    script = "import sys; from det_core.launch import worker; sys.exit(worker.main('m:T'))"
    node = partial(start, "ring", *NODES, f"--port={find_adjacent_free_ports()}", script=script)
    with ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        nodes = [pool.submit(node, f"--node={index}", DET_COMM_KEY=key * 64) for index, key in enumerate("ab")]
        ended = [future.result() for future in nodes]
    assert time.monotonic() - began < 40
    for index, ran in enumerate(ended):
        (line,) = ran.stderr.splitlines()
        assert line.startswith(f"det: the workers failed: rank {index}: "), ran.stderr
        assert line.endswith("has another DET_COMM_KEY; set the same for all workers")
        assert ran.returncode == 1


def test_free_ports_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_free_ports(2) as (one, other), socket.socket() as taken:
        assert one != other
        with pytest.raises(OSError, match="in use"):
            taken.bind(("127.0.0.1", one))
    with socket.socket() as free:
        free.bind(("127.0.0.1", one))
