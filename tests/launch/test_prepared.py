"""Workers that a prepared process forks are like those that are started."""

from __future__ import annotations

import json
import marshal
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing import is_soak

from det_core.launch import _fork_requests, prepared_process
from det_core.launch._fork_requests import LENGTH
from det_core.launch._guarded_command import SpawnedCommand
from det_core.launch._prepared_command import PreparedCommand

from ..waiting import is_alive, wait_for

pytestmark = pytest.mark.integration

PREPARED = """
import atexit, os, random, signal, sys, tempfile
import numpy
os.environ["SET_BY_IMPORT"] = os.environ["COLOR"]
signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
signal.signal(signal.SIGHUP, lambda *_: print("hung up", flush=True))
atexit.register(lambda: print("at exit", flush=True))
DIRECTORY = tempfile.TemporaryDirectory(prefix="prepared-")
print("imported", file=sys.stderr)
PID = os.getpid()
"""
"""Module that has the effects of an import that a fork keeps."""
MODULES = {
    "prepared": PREPARED,
    "starts_thread": "import threading as t, time\nt.Thread(target=time.sleep, args=[600], daemon=True).start()",
    "opens_file": "kept = open(__file__)",
    "answers": "import os, sys\nos.write(int(sys.argv[1]), b'{}\\n')",
    "sleeps": "import time\ntime.sleep(600)",
    "signals_itself": """
import os, signal
forks = []
def forked():
    forks.append(None)
    if len(forks) == 3:  # of two guards and a worker
        os.kill(os.getpid(), signal.SIGTERM)
os.register_at_fork(after_in_child=forked)
""",
}
_KERNEL = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
AT_EXIT = "at exit\n"
"""Last output of a process with the first of the modules."""
DESCRIBE = """
import prepared
import atexit, gc, io, json, locale, multiprocessing, os, random, resource, signal, sys, threading, warnings
from multiprocessing import resource_tracker
from pathlib import Path

def files():
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append([os.readlink(f"/proc/self/fd/{number}").partition(":")[0], os.get_inheritable(int(number))])
        except OSError:
            pass
    return sorted(found)

def stream(one):
    return [one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty(), one.seekable(), one.fileno()]

def status(*names):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: lines[name].strip() for name in names}

limits = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
main = sys.modules["__main__"]
print(json.dumps({
    "argv": [sys.argv, sys.orig_argv, Path("/proc/self/cmdline").read_text().strip("\\0").split("\\0")],
    "main": [__name__, main.__spec__.name, main.__file__, main.__spec__.origin, main.__dict__ is globals()],
    "modules": ["probe" in sys.modules, prepared.__name__],
    "path": [sys.path, os.getcwd(), sys.flags.__repr__(), sys.warnoptions, warnings.filters.__repr__()],
    "environment": dict(os.environ),
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)] + [sys.stdin.read()],
    "files": files(),
    "signals": [[int(number), str(signal.getsignal(number)).partition(" at ")[0]] for number in signal.valid_signals()],
    "status": status("SigBlk", "Umask", "SigPnd"),
    "group": [os.getsid(0) == os.getpgid(0), os.getpid() == os.getsid(0), os.getppid() == os.getsid(0)],
    "limits": [resource.getrlimit(one) for one in limits],
    "priority": [os.nice(0), Path("/proc/self/oom_score_adj").read_text()],
    "interpreter": [sys.getrecursionlimit(), gc.get_threshold(), gc.isenabled(), locale.getlocale()],
    "multiprocessing": [resource_tracker._resource_tracker._fd, multiprocessing.current_process().name,
                        multiprocessing.parent_process(), multiprocessing.get_start_method(True)],
    "threads": [one.name for one in threading.enumerate()] + [threading.current_thread() is threading.main_thread()],
}))
"""
"""Program that describes all about its process that a program can see."""


WAIT = """
import os, time
print(os.getpid(), flush=True)
while not os.path.exists("release"):
    time.sleep(0.01)
print("released")
"""
"""Program that waits for a file."""

LAUNCHER = """
import os, signal, sys
from det_core.launch import worker_processes

command = [sys.executable, "-m", "probe"]
if sys.argv[1:] == []:
    launcher = worker_processes.start_launcher([*command, "launcher"], {**os.environ, "SET_BY": "node"})
    sys.exit(launcher.wait(60))
if sys.argv[1:] == ["launcher"]:
    signal.signal(signal.SIGTERM, lambda *_: None)
    worker = worker_processes.start_worker([*command, "worker"], {**os.environ, "SET_BY": "launcher"})
    sys.stdout.buffer.writelines(worker.stdout)
    sys.stderr.buffer.writelines(worker.stderr)
    sys.exit(worker.wait())
"""
"""Beginning of a program that starts itself as a launcher, which starts it as a worker, which runs the rest."""


class Running:
    """Command ``python -m probe`` in a directory, and its output."""

    def __init__(self, directory: Path, program: str, modules: Sequence[str] | None, **env: str) -> None:
        (directory / "probe.py").write_text(program)
        starts_others = "start_launcher" in program
        self.explained: list[str] = []
        """Why the command was started as a new process."""
        self.lock = (directory / "lock").open("w")
        sources, outputs = zip(*(os.pipe() for _ in range(2)), strict=True)
        keep: Any = {
            "env": {**os.environ, "PYTHONUNBUFFERED": "1", "COLOR": "red", **env},
            "cwd": directory,
            "inherit": [self.lock.fileno()],
            "outputs": outputs,
        }
        self.command = (
            SpawnedCommand([sys.executable, "-m", "probe"], **keep)
            if modules is None
            else PreparedCommand(modules, ["probe"], **keep, starts_others=starts_others, explain=self.explained.append)
        )
        for output in outputs:
            os.close(output)
        self.output, self.errors = map(os.fdopen, sources)

    def start(self) -> int:
        """Wait until the program has printed its process id, and return it."""
        wait_for(lambda: self.command.wait(0.01) or getattr(self.command, "_command", self))
        return int(self.output.readline())

    def end(self) -> tuple[int | None, str, str]:
        """Return the exit code, the output and the errors."""
        return self.command.wait(120), self.output.read(), self.errors.read()

    def close(self) -> None:
        """End the command."""
        self.command.close()
        for one in (self.output, self.errors, self.lock):
            one.close()


Run = Callable[..., Running]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with modules to prepare."""
    directory = tmp_path_factory.mktemp("site")
    for name, text in MODULES.items():
        (directory / f"{name}.py").write_text(text)
    return directory


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Iterator[Run]:
    """Return a function that starts a program."""
    with ExitStack() as ending:

        def start(program: str, modules: Sequence[str] | None = ("prepared",), **env: str) -> Running:
            env = {"PYTHONPATH": str(site), **env}
            return ending.enter_context(closing(Running(tmp_path, program, modules, **env)))

        yield start


def test_a_fork_is_like_a_new_process(run: Run) -> None:
    described = []
    for modules in (None, ("prepared",)):
        running = run(DESCRIBE, modules, DET_TRIAL_ID=str(modules))
        code, output, errors = running.end()
        assert (code, errors, running.explained) == (0, "imported\n", []), errors
        found = json.loads(output.removesuffix(AT_EXIT))
        assert found["environment"].pop("DET_TRIAL_ID") == str(modules)
        described.append(found)
    started, forked = described
    for what, value in started.items():
        assert (what, forked[what]) == (what, value)


def test_workers_of_a_forked_launcher_are_like_those_of_a_started_one(run: Run, tmp_path: Path) -> None:
    """In addition they keep the lock, because they are not below the guards of the launcher."""
    described = []
    for modules in (None, ("prepared",)):
        running = run(LAUNCHER + DESCRIBE, modules)
        code, output, errors = running.end()
        assert (code, running.explained) == (0, [])
        assert errors.count("imported") == 1
        found = json.loads(output.partition(AT_EXIT)[0])
        assert found["environment"]["SET_BY"] == "launcher"
        found["files"] = [file for file in found["files"] if file[0] != str(tmp_path / "lock")]
        described.append(found)
    started, forked = described
    for what, value in started.items():
        assert (what, forked[what]) == (what, value)


PIDS = """
import os, time
from pathlib import Path
Path("pid").write_text(str(os.getpid()))
Path("pid").rename("worker")
while True:
    time.sleep(1)
"""
"""Rest of a program whose worker runs until it is killed."""


@pytest.fixture
def chain(run: Run, tmp_path: Path) -> tuple[Running, psutil.Process]:
    """Return a forked launcher that runs, and its worker."""
    running = run(LAUNCHER + PIDS)
    wait_for(lambda: running.command.wait(0.01) is None and (tmp_path / "worker").exists())
    return running, psutil.Process(int((tmp_path / "worker").read_text()))


def launchers_of(running: Running) -> list[psutil.Process]:
    """Return the processes that start workers, of which the first has started the second."""
    server = psutil.Process(running.command._prepared._process.pid)
    lines = {one: [*filter(None, one.cmdline()[1:])] for one in server.children(recursive=True)}
    return [next(one for one, line in lines.items() if line == ["-m", "probe", *last]) for last in ([], ["launcher"])]


@pytest.mark.parametrize("position", [0, 1])
def test_workers_end_at_once_with_each_of_their_launchers(chain: tuple[Running, psutil.Process], position: int) -> None:
    running, worker = chain
    launchers_of(running)[position].kill()
    assert running.command.wait(60) == (-signal.SIGKILL if position == 0 else 256 - signal.SIGKILL)
    wait_for(lambda: not is_alive(worker.pid), 5)


def test_a_killed_worker_ends_its_launchers(chain: tuple[Running, psutil.Process]) -> None:
    running, worker = chain
    assert os.getsid(worker.pid) == worker.pid
    os.killpg(worker.pid, signal.SIGKILL)
    assert running.command.wait(60) == 256 - signal.SIGKILL


def test_workers_end_when_their_launch_is_killed(chain: tuple[Running, psutil.Process]) -> None:
    running, worker = chain
    running.command.kill()
    wait_for(lambda: not is_alive(worker.pid), 5)


def test_a_launcher_without_its_prepared_process_starts_new_processes(run: Run, tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
if sys.argv[1:] == []:
    print(os.getpid(), flush=True)
    while not os.path.exists("release"):
        time.sleep(0.01)
"""
    running = run(f"{LAUNCHER.replace('command =', program + 'command =')}print('worked')")
    running.start()
    running.command._prepared._process.kill()
    running.command._prepared._process.wait(60)
    (tmp_path / "release").touch()
    code, output, errors = running.end()
    assert (code, output) == (0, f"worked\n{AT_EXIT}"), errors
    assert "probe starts as a new process, because the prepared process has died or does not answer" in errors


def test_a_fork_shows_an_error_as_a_new_process_does(run: Run) -> None:
    program = "import prepared\ndef fail():\n    1 / 0\nfail()"
    started, forked = (run(program, modules).end() for modules in (None, ("prepared",)))
    assert started == forked
    assert started[0] == 1 and "probe.py" in started[2]


def test_random_states_differ(run: Run) -> None:
    program = """
import numpy, random, multiprocessing, os, tempfile, uuid
print(random.random(), numpy.random.rand(), bytes(multiprocessing.current_process().authkey), uuid.uuid4(),
      next(tempfile._get_candidate_names()), sep="\\n")
"""
    first, second = (run(program).end()[1].removesuffix(AT_EXIT).splitlines() for _ in range(2))
    assert len(first) == 5
    assert not set(first) & set(second)


def test_a_changed_program_is_read_again(run: Run) -> None:
    """Nothing of the user's code is prepared, also if it has the same name."""
    texts = ("first", "another")  # of different sizes, because compiled modules have the time in seconds
    assert [run(f"print({text!r})").end()[1] for text in texts] == [f"{text}\n{AT_EXIT}" for text in texts]


def test_a_module_of_the_code_comes_before_one_of_a_library(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prepared.py").write_text("print('of the code')")
    running = run("import prepared")
    assert running.end()[:2] == (0, "of the code\n")
    assert running.explained == [
        "the worker starts as a new process, because the code has a module prepared, and so have the libraries"
    ]


def test_a_search_path_may_be_relative(run: Run, site: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_module.py").write_text("print('own')")
    running = run("import own_module", PYTHONPATH=f":own:{site}")
    assert running.end()[:2] == (0, f"own\n{AT_EXIT}")
    assert running.explained == []


def test_what_a_program_leaves_open_is_written(run: Run, tmp_path: Path) -> None:
    program = """
import atexit, sys, threading, time
file = open("file", "w")
file.write("text")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
sys.stdout.write("no newline")
sys.exit(3)
"""
    assert run(program, PYTHONUNBUFFERED="").end()[:2] == (3, f"no newlinethread\n{AT_EXIT}")
    assert (tmp_path / "file").read_text() == "text"


def test_a_prepared_process_keeps_nothing_of_its_forks(run: Run) -> None:
    before = run("").end()
    running = run(WAIT)
    running.start()
    prepared = running.command._prepared
    opened = [one.readlink() for one in Path(f"/proc/{prepared._process.pid}/fd").iterdir()]
    assert sorted({str(one).partition(":")[0] for one in opened}) == ["/dev/null", "pipe", "socket"]
    assert len(opened) == 4
    assert before[0] == 0
    assert psutil.Process(prepared._process.pid).num_threads() == 1


def test_forks_leave_what_they_share_to_the_prepared_process(run: Run, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    program = "import prepared, os; print(os.path.isdir(prepared.DIRECTORY.name))"
    first, second = (run(program, TMPDIR=str(tmp_path / "temporary")) for _ in range(2))
    assert first.end()[1] == second.end()[1] == f"True\n{AT_EXIT}"
    assert len([*(tmp_path / "temporary").iterdir()]) == 1
    first.command._prepared.close()
    assert [*(tmp_path / "temporary").iterdir()] == []


def test_the_death_of_a_prepared_process_ends_no_fork(run: Run, tmp_path: Path) -> None:
    running = run(WAIT)
    running.start()
    process = running.command._prepared._process
    process.kill()
    process.wait(60)
    other = run("print('other')")
    assert other.end()[:2] == (0, f"other\n{AT_EXIT}")
    assert other.command._prepared._process.pid != process.pid
    (tmp_path / "release").touch()
    assert running.end()[:2] == (0, f"released\n{AT_EXIT}")


def test_all_end_with_their_runner(site: Path, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(WAIT)
    (tmp_path / "runner.py").write_text("""
import os, sys
from pathlib import Path
from det_core.launch import prepared_process
from det_core.launch._prepared_command import PreparedCommand
prepared_process.GRACE = 0.1
keep = {"cwd": Path.cwd(), "inherit": [], "outputs": [1, 2], "explain": print}
command = PreparedCommand(["prepared"], ["probe"], dict(os.environ), **keep)
while command.wait(1) is None:
    pass
""")
    environment = {**os.environ, "PYTHONPATH": str(site), "COLOR": "red"}
    command = [sys.executable, "runner.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout
        worker = psutil.Process(int(runner.stdout.readline()))
        others = [*psutil.Process(runner.pid).children(recursive=True), *worker.parents()[:2]]
        assert len({*others, worker}) == 4
        runner.kill()
        wait_for(lambda: not any(is_alive(one.pid) for one in (worker, *others)))


@pytest.mark.parametrize("guard", ["outer", "inner", "stopped outer"])
def test_a_fork_ends_with_its_guards(run: Run, guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.launch._guarded_command._KILL_SECONDS", 0.5)
    running = run(WAIT)
    worker = psutil.Process(running.start())
    inner, outer = worker.parents()[:2]
    if guard == "stopped outer":
        outer.suspend()
        running.command.kill()
    else:
        (inner if guard == "inner" else outer).kill()
    assert running.command.wait(60) == -signal.SIGKILL
    wait_for(lambda: not any(is_alive(one.pid) for one in (worker, inner, outer)))


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (
            "no_such_module",
            "the import of no_such_module failed: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("starts_thread", "the import of starts_thread started threads (1), which forks would not have"),
        ("opens_file", "the import of opens_file opened "),
        ("sleeps", "the modules were not imported within 1 s"),
    ],
)
def test_a_module_that_cannot_be_prepared_is_named(
    run: Run, module: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_process, "_READY_SECONDS", 1.0 if module == "sleeps" else 60.0)
    for _ in range(2):
        running = run("print('started')", ["prepared", module])
        assert running.end()[:2] == (0, "started\n")
        (explained,) = running.explained
        assert explained.startswith(f"the worker starts as a new process, because {problem}")


def test_a_prepared_process_that_does_not_answer_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork_requests, "_SECONDS", 0.2)
    assert run("").end()[0] == 0
    running = run("print('started')")
    process = running.command._prepared._process
    psutil.Process(process.pid).suspend()
    assert running.end()[:2] == (0, "started\n")
    assert running.explained == [
        "the worker starts as a new process, because the prepared process has died or does not answer"
    ]
    assert process.poll() == -signal.SIGKILL


def test_an_unexpected_answer_starts_a_new_process(run: Run) -> None:
    """Such as that of another release, to which det was upgraded while the runner ran."""
    running = run("print('started')", ["answers"])
    assert running.end()[:2] == (0, "started\n")
    assert running.explained == [
        "the worker starts as a new process, because the prepared process did not answer as expected"
    ]


def test_a_request_that_was_given_up_starts_nothing(run: Run, tmp_path: Path) -> None:
    """A trial never has two workers."""
    prepared = run("open('started', 'w')").command._prepared
    flags = {"leads_session": False, "starts_others": False}
    request = marshal.dumps({"argv": ["probe"], "env": dict(os.environ), "cwd": str(tmp_path), "grace": 9, **flags})
    ours, theirs = socket.socketpair()
    with ours, Path(os.devnull).open("r+b") as nothing:
        with theirs:
            prepared.pass_connection(theirs)
            socket.send_fds(ours, [LENGTH.pack(len(request)) + request + b"!"], 3 * [nothing.fileno()])
        with suppress(ConnectionResetError):
            assert ours.recv(100) == b""
    assert not (tmp_path / "started").exists()


def test_a_kill_comes_before_the_start(run: Run, tmp_path: Path) -> None:
    running = run("open('started', 'w')", ["sleeps"])
    assert running.command.wait(0.1) is None
    running.command.kill()
    assert running.end() == (-signal.SIGKILL, "", "")
    assert not (tmp_path / "started").exists()


def test_a_signal_may_come_before_the_program(run: Run) -> None:
    """It waits until the handlers are those of the worker."""
    assert run("print('not reached')", ["signals_itself"]).end() == (-signal.SIGTERM, "", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_fork_starts_processes(run: Run, method: str) -> None:
    program = """
import multiprocessing, sys
def square(number):
    return number * number
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[0] and METHOD).Pool(2) as pool:
        print(pool.map(square, range(3)))
""".replace("METHOD", repr(method))
    code, output, errors = run(program).end()
    assert (code, output.splitlines()[0]) == (0, "[0, 1, 4]"), errors


@pytest.mark.skipif(_KERNEL < (6, 1), reason="this kernel moves no memory to huge pages on request")
def test_a_process_that_forks_often_has_huge_pages(run: Run) -> None:
    for _ in range(12):
        running = run("")
        assert running.end()[0] == 0
    pages = Path(f"/proc/{running.command._prepared._process.pid}/smaps_rollup")
    wait_for(lambda: not re.search(r"^AnonHugePages: +0 kB", pages.read_text(), re.MULTILINE))
    assert run("print('fork')").end()[:2] == (0, f"fork\n{AT_EXIT}")


@pytest.mark.campaign
def test_many_forks_leave_nothing(run: Run) -> None:
    """A prepared process of a long search gains no memory, descriptors or children."""
    process = psutil.Process(run("").command._prepared._process.pid)

    def fork(count: int) -> tuple[int, int]:
        for _ in range(count):
            assert run("").end()[0] == 0
        wait_for(lambda: not process.children())
        return process.num_fds(), process.num_threads()

    before, memory = fork(20), process.memory_info().rss
    assert fork(1000 if is_soak() else 50) == before
    assert process.memory_info().rss - memory < 4 << 20
