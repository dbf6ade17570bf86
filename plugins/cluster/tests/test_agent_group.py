"""Node agents that run as programs behind pipes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_cluster import agent_group
from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from det_testing.launcher.watched_launch import refuse_calls

from det_core.errors import LaunchError
from det_core.interfaces.launcher import PYTHON, Cause, Exit, LaunchRequest, Phase
from det_core.launch.context_archive import pack_context_dir
from det_core.processes import process_has_ended
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

AGENT = [sys.executable, "-m", "det_cluster.agent_program"]
PROMISED = 10.0
"""Seconds within which workers end when their runner is gone."""
SLACK = 20.0
SECRET = "0" * 32

CLUSTER = {
    "master_url": "sqlite:///unused",
    "cluster_id": "c",
    "task_id": "t",
    "allocation_id": "a",
    "session_token": "",
}


@pytest.fixture
def request_for(tmp_path: Path) -> Callable[..., tuple[LaunchRequest, list[str]]]:
    """Return a function that makes a request for Python code, with a list of the lines that it logs."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "helper.py").write_text("NAME = 'helper'\n")

    def make(script: str, *, slots: int = 1, **changes: Any) -> tuple[LaunchRequest, list[str]]:
        lines: list[str] = []
        values = {
            "key": "cluster-trial-1",
            "argv": [PYTHON, "-c", script],
            "code": pack_context_dir(code),
            "info": {"cluster.json": CLUSTER},
            "slots": slots,
            "log": lambda rank, stream, text: lines.append(f"{stream} {text}"),
            "call": refuse_calls,
            **changes,
        }
        return LaunchRequest(**values), lines

    return make


def test_no_file_of_the_present_directory_is_imported(
    request_for: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the directory of the user, on whichever node the agent starts."""
    for name in ("queue", "socket", "typing", "json", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this is not for the agent')\n")
    monkeypatch.chdir(tmp_path)
    request, lines = request_for("print('ready')")
    with closing(AgentGroup(request, [AGENT_COMMAND])) as group:
        assert group.wait(60) == Exit(code=0), lines
    assert lines == ["stdout ready"]


def wait_for_line(lines: Sequence[str], group: AgentGroup, text: str) -> None:
    end = time.monotonic() + 60
    while not any(text in line for line in lines):
        assert group.wait(0.1) is None, lines
        assert time.monotonic() < end, lines


EVERYTHING = f"""if True:
    import helper, os, sys
    from det_core.errors import TrackingError
    from det_core.tracking import open_store
    print(helper.NAME, os.environ["GIVEN"], "x" * 3000)
    print(open(os.path.join(os.environ["DET_SECRETS_DIR"], "{SECRET}")).read().strip())
    store = open_store("agent:")
    print(store.cluster_id)
    try:
        store.experiments()
    except TrackingError as error:
        print(error)
    sys.exit(78)
"""


def test_a_node_runs_code_with_secrets_and_the_tracking_store_of_the_runner(request_for: Any) -> None:
    """Banners on the way do no harm."""
    called = []

    def call(method: str, body: bytes) -> bytes:
        called.append(method)
        if method != "cluster_id":
            raise LookupError(method)
        return b'{"returned": "the id"}'

    request, lines = request_for(EVERYTHING, env={"GIVEN": "a\nb"}, secrets={SECRET: "hunter2"}, call=call)
    assert "hunter2" not in repr(request)
    banner = ["sh", "-c", 'echo Welcome; echo "det: no message"; exec "$@"', "sh", *AGENT]
    with closing(AgentGroup(request, [banner])) as group:
        assert group.wait(60) == Exit(code=78), lines
        assert group.status().phase is Phase.RUNNING
    assert called == ["cluster_id", "experiments"]
    assert lines == [
        "det Welcome",
        "det det: no message",
        "stdout helper a",
        f"stdout b {'x' * 3000}",
        "stdout hunter2",
        "stdout the id",
        "stdout experiments failed: LookupError: experiments",
    ]


WAITS = """
import threading, sys
from det_core.core.agent_channel import AgentChannel, SOCKET
import os
stop = threading.Event()
channel = AgentChannel(os.environ[SOCKET], lambda why: (print(why, flush=True), stop.set()))
print("ready", flush=True)
stop.wait(60)
"""


def test_workers_are_preempted(request_for: Any) -> None:
    request, lines = request_for(WAITS)
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        group.preempt()
        assert group.wait(60) == Exit(code=0)
    assert lines == ["stdout ready", "stdout runner"]


def test_signals_of_the_engine_preempt_the_workers(request_for: Any) -> None:
    request, lines = request_for(WAITS)
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        group.processes[0].send_signal(signal.SIGTERM)
        end = group.wait(60)
        assert end and (end.code, end.cause) == (0, Cause.PREEMPTED)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_warning_of_the_engine_to_all_processes_preempts_the_workers(request_for: Any, number: int) -> None:
    request, lines = request_for(WAITS)
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        agent = psutil.Process(group.processes[0].pid)
        for process in [agent, *agent.children(recursive=True)]:
            process.send_signal(number)
        end = group.wait(60)
        assert end and (end.code, end.cause) == (0, Cause.TIME_LIMIT)


def test_commands_keep_descriptors_open(request_for: Any) -> None:
    """ssh closes what it inherits. Slots must stay in use nevertheless, also if the runner is killed."""
    ours, theirs = os.pipe()
    request, lines = request_for("pass")
    closes = (
        "import os, sys, time; os.closerange(3, 256); print('closed', file=sys.stderr, flush=True); time.sleep(999)"
    )
    command = [sys.executable, "-c", closes]
    with closing(AgentGroup(request, [command], inherit=[theirs])) as group, os.fdopen(ours, "rb") as end:
        os.close(theirs)
        wait_for_line(lines, group, "closed")
        assert select.select([end], [], [], 0)[0] == []
        group.terminate()
        assert end.read() == b""


def test_a_killed_agent_is_a_lost_node(request_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_LOST_SECONDS", 0.5)
    request, lines = request_for("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "stdout ")
        worker = psutil.Process(int(lines[0].split()[1]))
        group.processes[0].kill()
        killed = time.monotonic()
        end = group.wait(60)
        assert time.monotonic() - killed >= 0.5
        assert end and end.cause is Cause.NODE_LOST
        assert "ended with code -9" in end.message
    worker.wait(PROMISED + SLACK)


def test_kill_ends_everything(request_for: Any) -> None:
    request, lines = request_for("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "stdout ")
        worker = int(lines[0].split()[1])
        group.kill()
        assert group.wait(0) == Exit(code=-9)
        assert not psutil.pid_exists(worker)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "echo no route to host >&2; exit 255"], "ended with code 255: no route to host"),
        ([sys.executable, "-m", "no_such_module"], "No module named no_such_module"),
        ([sys.executable, "-I", "-S", "-m", "det_cluster.agent_program"], "; install det-cluster 0"),
        (["sh", "-c", "exec nice no-python3"], "; install det-cluster 0"),
    ],
)
def test_a_command_that_starts_no_agent_says_why(request_for: Any, command: list[str], message: str) -> None:
    request, _ = request_for("pass")
    with closing(AgentGroup(request, [command])) as group:
        end = group.wait(60)
    assert end and end.cause is Cause.NOT_STARTED
    assert message in end.message


ALL_NODES = """
import os, subprocess, sys, threading

def relay(index, agent):
    for line in agent.stdout:
        sys.stdout.buffer.write(b"%d: %s" % (index, line))
        sys.stdout.buffer.flush()

command = [sys.executable, "-m", "det_cluster.agent_program"]
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
agents = [subprocess.Popen([*command, "--node", str(i), "--name", f"n{i}"], **pipes) for i in range(2)]
relays = [threading.Thread(target=relay, args=one) for one in enumerate(agents)]
for one in relays:
    one.start()

def copy():
    for line in sys.stdin.buffer:
        for agent in agents:
            try:
                agent.stdin.write(line)
                agent.stdin.flush()
            except OSError:
                pass

threading.Thread(target=copy, daemon=True).start()
for one in relays:
    one.join()
os._exit(0)  # the copying thread waits for stdin
"""
"""Program that starts the agents of two nodes and labels their output, as ``srun --label`` does."""


def test_one_command_starts_the_agents_of_all_nodes(request_for: Any) -> None:
    script = (
        "import det_core as det; info = det.get_cluster_info(); r = info.rendezvous\n"
        "print(info.agent_id, r.container_rank, r.container_slot_counts, info.slot_ids, r.port > 0, 'x' * 3000)"
    )
    request, lines = request_for(script, slots=4)
    with closing(AgentGroup(request, [[sys.executable, "-c", ALL_NODES]], nodes=2)) as group:
        end = group.wait(60)
        assert end == Exit(code=0), (end and end.message, len(lines))
        assert group.status().nodes == ["n0", "n1"]
    assert sorted(lines) == [f"stdout n{index} {index} [2, 2] [0, 1] True {'x' * 3000}" for index in range(2)]


@pytest.mark.parametrize(
    ("commands", "problem"),
    [
        ([AGENT, AGENT], "3 slots, which 2 nodes cannot share equally; change resources.slots"),
        ([AGENT, ["no-such-program"], AGENT], "no-such-program"),
    ],
    ids=["slots that nodes cannot share", "a program that does not exist"],
)
def test_a_group_that_cannot_start_is_closed(request_for: Any, commands: Any, problem: str) -> None:
    """Subclasses release slots when they are closed."""
    closed = []

    class Group(AgentGroup):
        def close(self) -> None:
            super().close()
            closed.append(self)

    request, _ = request_for("pass", slots=3)
    with pytest.raises(LaunchError, match=problem):
        Group(request, commands)
    assert len(closed) == 1


RUNNER = """if True:
    import sys
    from det_core.interfaces.launcher import PYTHON, LaunchRequest
    from det_cluster import agent_group
    from det_cluster.agent_group import AgentGroup
    from det_core.launch.context_archive import EMPTY_CONTEXT
    request = LaunchRequest(
        key="k",
        argv=[PYTHON, "-c", "import os, time; print(os.getpid()); print('x' * (1 << 20)); time.sleep(1000)"],
        code=EMPTY_CONTEXT,
        info={"cluster.json": {}},
        slots=1,
        log=lambda rank, stream, text: print(text, flush=True),
        call=lambda method, body: b"",
    )
    agent_group._LOST_SECONDS = 0.0
    group = AgentGroup(request, [sys.argv[1:]])
    print("end:", group.wait(100).cause)
"""
IMPATIENT_AGENT = """if True:
    import sys
    from det_cluster import _agent_messages, agent_program
    _agent_messages.SILENCE_SECONDS = agent_program.GRACE = 0.5
    sys.exit(agent_program.main([]))
"""


@pytest.mark.parametrize(
    ("number", "agent"), [(signal.SIGKILL, AGENT), (signal.SIGSTOP, [sys.executable, "-c", IMPATIENT_AGENT])]
)
def test_workers_end_soon_after_their_runner(number: int, agent: Sequence[str]) -> None:
    """The runner is killed without any chance to say so, or frozen with more output on its way than pipes hold."""
    with subprocess.Popen([sys.executable, "-c", RUNNER, *agent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        wait_for(lambda: all(process_has_ended(child.pid) for child in started), PROMISED + SLACK)
        process.send_signal(signal.SIGCONT)
        lines = process.stdout.readlines()
    assert number == signal.SIGKILL or lines[-1] == "end: Cause.NODE_LOST\n"
