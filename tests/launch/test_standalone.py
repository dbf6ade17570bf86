"""Command line ``python -m det_core.launch``, and the errors of its users."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.core import failure_notes
from det_core.launch import __main__ as command
from det_core.launch import _node, backends, standalone
from det_core.launch.network import find_adjacent_free_ports, reserve_free_ports
from det_core.launch.worker_environment import thread_limit_variables
from det_core.package_commands import package_command
from det_core.plugins import plugin_registry

RING = Path(__file__).parents[2] / "examples" / "backend_plugin"
Start = Callable[..., "subprocess.CompletedProcess[str]"]
Call = Callable[..., int]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a directory with the metadata of the ring backend."""
    write_plugin_metadata(tmp_path / "site", "det-ring")
    return tmp_path / "site"


@pytest.fixture
def start(tmp_path: Path, site: Path) -> Start:
    """Run the command with the ring backend installed, and a script given as text."""

    def start(*arguments: str, script: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "train.py").write_text(script)
        path = os.pathsep.join([str(site), str(RING)])
        line = [sys.executable, "-m", "det_core.launch", *arguments, "--", "train.py"]
        environment = {**os.environ, "PYTHONPATH": path, **env}
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    return start


@pytest.fixture
def call(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Run the command in this process with the ring backend installed, and return its exit code."""
    for path in (site, RING):
        monkeypatch.syspath_prepend(str(path))
    monkeypatch.delenv("DET_COMM_KEY", raising=False)
    plugin_registry.cache_clear()
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> int:
        try:
            return command.main([*arguments, "--", "train.py"])
        except SystemExit as end:
            return int(end.code or 0)

    yield call
    signal.signal(signal.SIGTERM, before)
    plugin_registry.cache_clear()


NODES = ("--hosts=127.0.0.1,127.0.0.2",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rink",), "did you mean 'ring'?"),
        (("ring", "--option=grade=1"), "did you mean 'grace'?"),
        (("ring", "--option=grace=-1"), "distributed: grace: got -1; expected 0.0 or more"),
        (("ring", "--option=grace"), "--option grace: expected KEY=VALUE"),
        (("ring", "--option=grace=[1"), "--option grace=[1:1: not valid YAML"),
        (("ring", "--slots=0"), "the number of slots is 0; expected 1 or more on each node"),
        (("ring", *NODES, "--node=2", "--port=1"), "is 2; expected an index into 127.0.0.1, 127.0.0.2, from 0"),
        (("ring", *NODES, "--node=-1", "--port=1"), "is -1; expected an index into 127.0.0.1, 127.0.0.2, from 0"),
        (("ring", *NODES, "--port=1"), "missing; give its position in 127.0.0.1, 127.0.0.2, from 0, as --node I"),
        (("ring", "--port=65535"), "the port is 65535; expected 1 to 65534"),
        (("ring", "--port=0"), "the port is 0; expected 1 to 65534"),
        (("ring", *NODES, "--node=0"), "several nodes must agree on a port; give the same --port P"),
        (("ring", *NODES, "--node=1", "--port=1"), "set DET_COMM_KEY to the same"),
    ],
)
def test_a_wrong_command_line_is_reported(
    call: Call, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert call(*arguments) in (2, 78)
    output, errors = capfd.readouterr()
    assert words in errors
    assert (output, "Traceback" in errors) == ("", False)


def test_a_node_without_the_library_for_tls_says_so_before_workers_start(
    call: Call, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setenv("DET_COMM_KEY", "k" * 64)
    assert call("ring", *NODES, "--node=1", "--port=1") == 78
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        "det: the workers failed: encrypted connections between hosts need cryptography, which is not installed; "
        f"type: {package_command('install', 'det-core[tls]')}"
    )


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((), {"hosts": None, "node": None, "slots": None, "port": None}),
        (
            ("--hosts=a,b", "--node=1", "--slots=3", "--port=7"),
            {"hosts": ["a", "b"], "node": 1, "slots": 3, "port": 7},
        ),
    ],
)
def test_the_command_line_describes_the_node(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], place: dict[str, object]
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(command, "start_workers", lambda *given, **more: calls.append((given, more)) or 5)
    assert command.main(["ring", "--option=a.b=[1]", "--option=c=x", *arguments, "--", "-m", "m", "x"]) == 5
    assert calls == [(("ring", [sys.executable, "-m", "m", "x"], {"a": {"b": [1]}, "c": "x"}), place)]


def test_an_interrupt_and_a_termination_are_exit_codes(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    def terminate(*_: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    for run, number in ((interrupt, signal.SIGINT), (terminate, signal.SIGTERM)):
        monkeypatch.setattr(standalone.Node, "run", run)
        assert call("ring") == 128 + number


@pytest.mark.parametrize(("slots", "threads"), [(1, "5"), (2, "2"), (3, "1"), (8, "1")])
def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch, slots: int, threads: str) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_limit_variables(slots) == {"OMP_NUM_THREADS": threads}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert thread_limit_variables(slots) == {"OMP_NUM_THREADS": "7"}
    assert thread_limit_variables(slots, cpus=5) == {"OMP_NUM_THREADS": threads}


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (-9, 137)])
def test_the_exit_code_is_that_of_the_launcher_unless_a_worker_has_left_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, expected: int
) -> None:
    assert (_node._report_failure(code, tmp_path), capsys.readouterr().err) == (expected, "")
    monkeypatch.setenv(failure_notes.NOTES_VARIABLE, str(tmp_path))
    failure_notes.write_failure_note(1, 78, "InvalidTrial: no such thing")
    assert _node._report_failure(code, tmp_path) == 78
    assert capsys.readouterr().err == "det: the workers failed: rank 1: InvalidTrial: no such thing\n"


def test_each_job_has_a_key_and_ports_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    node = _node.Node(hosts=["h"], node=0, slots=2)
    monkeypatch.delenv("DET_COMM_KEY", raising=False)
    first, second = (node._environment(17) for _ in range(2))
    assert (first[backends.CHIEF_VARIABLE], first[backends.PORT_VARIABLE]) == ("h", "17")
    assert len(first["DET_COMM_KEY"]) == 64 and first["DET_COMM_KEY"] != second["DET_COMM_KEY"]
    monkeypatch.setenv("DET_COMM_KEY", "k" * 32)
    assert node._environment(17)["DET_COMM_KEY"] == "k" * 32
    with node._ports() as (port, meeting):
        assert port != meeting
    with _node.Node(hosts=["h"], node=0, slots=2, port=4000)._ports() as ports:
        assert ports == (4000, 4001)


@pytest.mark.integration
def test_workers_start_without_the_library_for_tls_and_share_the_cores(
    start: Start, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (site / "sitecustomize.py").write_text("import sys; sys.modules['cryptography'] = None")
    ran = start("ring", "--slots=2", script="import os; print(os.environ['OMP_NUM_THREADS'])")
    expected = max(1, len(os.sched_getaffinity(0)) // 2)
    assert sorted(ran.stdout.splitlines()) == [f"[rank={rank}] {expected}" for rank in (0, 1)]


FAILS = """
import os, sys, time
from det_core.core import failure_notes
if os.environ["RING_LOCAL"] == "1":
    failure_notes.write_failure_note(1, 78, "InvalidTrial: no such thing")
    {then}
time.sleep(1000)
"""


@pytest.mark.integration
@pytest.mark.parametrize("then", ["sys.exit(1)", "pass"], ids=["exits", "does not end"])
def test_the_failure_note_of_a_worker_is_reported(
    call: Call,
    tmp_path: Path,
    site: Path,
    then: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The others are killed, also if the launcher of the backend does not end."""
    (tmp_path / "train.py").write_text(FAILS.format(then=then))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(RING)]))
    monkeypatch.setattr(_node, "FAILURE_GRACE", 0.2)
    assert call("ring", "--slots=2") == 78
    assert capfd.readouterr().err.splitlines()[-1] == "det: the workers failed: rank 1: InvalidTrial: no such thing"


@pytest.mark.integration
@pytest.mark.slow
def test_nodes_with_different_keys_end_with_one_line_each(start: Start) -> None:
    """The nodes end in seconds, although workers wait for each other for ten minutes."""
    script = "import sys; from det_core.launch import worker; sys.exit(worker.main('m:T'))"
    node = partial(start, "ring", *NODES, f"--port={find_adjacent_free_ports()}", script=script)
    with ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        nodes = [pool.submit(node, f"--node={index}", DET_COMM_KEY=key * 64) for index, key in enumerate("ab")]
        ended = [future.result() for future in nodes]
    assert time.monotonic() - began < 120
    for index, ran in enumerate(ended):
        (line,) = ran.stderr.splitlines()
        assert line.startswith(f"det: the workers failed: rank {index}: "), ran.stderr
        assert line.endswith("has another DET_COMM_KEY; set the same for all workers")
        assert ran.returncode == 1


def test_free_ports_are_reserved() -> None:
    with reserve_free_ports(2) as (one, other), socket.socket() as taken:
        assert one != other
        with pytest.raises(OSError, match="in use"):
            taken.bind(("127.0.0.1", one))
    with socket.socket() as free:
        free.bind(("127.0.0.1", one))
