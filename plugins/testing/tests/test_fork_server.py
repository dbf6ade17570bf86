"""Processes that are forks of a prepared one behave like new ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from det_testing.fork_server import run_fork_server

from tests.waiting import is_alive, wait_for

pytestmark = pytest.mark.integration

PROGRAM = """
import atexit, importlib, os, sys, threading, time
from pathlib import Path
import prepared
how = sys.argv[1]
if how == "describe":
    import late
    print(prepared.PID != os.getpid(), late.NAME, os.environ["COLOR"], Path.cwd().name, sys.stdin.read(), __name__)
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
elif how == "leave":
    print("no newline", end="")
    sys.stdout.buffer.write(b", no flush")
    if sys.argv[2] == "9":
        os.kill(os.getpid(), 9)
    sys.exit(int(sys.argv[2]))
elif how == "refuse":
    sys.exit("refused")
elif how == "raise":
    raise ValueError("a defect")
elif how == "kill":
    os.kill(os.getpid(), int(sys.argv[2]))
elif how == "wait":
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Run a server that has imported a module."""
    site = tmp_path_factory.mktemp("site")
    (site / "prepared.py").write_text("import os\nPID = os.getpid()\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        with run_fork_server(["prepared"]) as words:
            yield words


@pytest.fixture
def command(words: list[str], tmp_path: Path) -> list[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    return [sys.executable, *words, "program.py"]


def test_a_fork_has_its_own_streams_environment_and_paths(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "late.py").write_text("NAME = 'late'")
    environment = {**os.environ, "COLOR": "red", "PYTHONPATH": str(tmp_path / "other")}
    done = subprocess.run(
        [*command, "describe"],
        cwd=tmp_path,
        env=environment,
        input="input",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == f"True late red {tmp_path.name} input __main__\nthread\nat exit\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "output", "errors"),
    [
        ("leave 0", 0, "no newline, no flush", ""),
        ("leave 7", 7, "no newline, no flush", ""),
        ("leave 9", -9, "no newline, no flush", ""),
        ("refuse", 1, "", "refused\n"),
        ("raise", 1, "", "ValueError: a defect\n"),
        ("kill 9", -9, "", ""),
        ("kill 15", -15, "", ""),
        ("kill 2", -2, "", "KeyboardInterrupt\n"),
    ],
)
def test_a_fork_ends_as_a_new_process_would(
    command: list[str], tmp_path: Path, arguments: str, code: int, output: str, errors: str
) -> None:
    done = subprocess.run([*command, *arguments.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (code, output)
    assert done.stderr.endswith(errors)
    assert bool(errors) == bool(done.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_fork(command: list[str], tmp_path: Path, number: int) -> None:
    with subprocess.Popen([*command, "wait"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        fork = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(120) == -number
        assert process.stdout.read() == ""
    wait_for(lambda: not is_alive(fork))
