"""Node agents that run as programs behind pipes."""

from __future__ import annotations

import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_core.errors import LaunchError
from det_core.interfaces.launcher import PYTHON, Cause, Exit, LaunchRequest, Phase
from det_core.launch import _agent_messages as messages
from det_core.launch import agent_group
from det_core.launch.agent_group import AgentGroup
from det_core.launch.context_archive import pack_context_dir
from det_core.launch.processes import process_has_ended
from det_core.testing.launcher._watched_launch import refuse_calls
from det_core.tracking import remote

from ..waiting import wait_for

pytestmark = pytest.mark.integration

AGENT = [sys.executable, "-m", "det_core.launch.agent_program"]
PROMISED = 10.0
"""Seconds within which workers end when their runner is gone."""
SLACK = 3.0


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


def wait_for_line(lines: Sequence[str], group: AgentGroup, text: str) -> None:
    end = time.monotonic() + 60
    while not any(text in line for line in lines):
        assert group.wait(0.1) is None, lines
        assert time.monotonic() < end, lines


def test_a_node_runs_the_code_and_returns_output_and_exit_code(request_for: Any) -> None:
    script = "import helper, os, sys; print(helper.NAME, os.environ['GIVEN'], 'x' * 3000); sys.exit(78)"
    request, lines = request_for(script, env={"GIVEN": "a\nb"})
    with closing(AgentGroup(request, [AGENT])) as group:
        assert group.wait(60) == Exit(code=78)
        assert group.status().phase is Phase.RUNNING
    assert lines == ["stdout helper a", f"stdout b {'x' * 3000}"]


def test_secrets_are_files_of_the_worker(request_for: Any) -> None:
    reference = "0" * 32
    script = (
        f"from det_core.tracking.secret_files import resolve_secrets; print(resolve_secrets('det-secret:{reference}'))"
    )
    request, lines = request_for(script, secrets={reference: "hunter2"})
    assert "hunter2" not in repr(request)
    with closing(AgentGroup(request, [AGENT])) as group:
        assert group.wait(60) == Exit(code=0)
    assert lines == ["stdout hunter2"]


def test_workers_call_the_tracking_store_of_the_runner(request_for: Any) -> None:
    called = []

    def call(method: str, body: bytes) -> bytes:
        called.append(method)
        return b'{"returned": "the id"}'

    script = "from det_core.tracking import open_store; print(open_store('agent:').cluster_id)"
    request, lines = request_for(script, call=call)
    with closing(AgentGroup(request, [AGENT])) as group:
        assert group.wait(60) == Exit(code=0), lines
    assert (called, lines) == (["cluster_id"], ["stdout the id"])


def test_a_call_that_the_runner_cannot_execute_is_an_error_of_the_worker(request_for: Any) -> None:
    script = """if True:
        from det_core.errors import TrackingError
        from det_core.tracking import open_store
        try:
            open_store('agent:').cluster_id
        except TrackingError as error:
            print(error)
    """

    def fail(method: str, body: bytes) -> bytes:
        raise AssertionError(method)

    request, lines = request_for(script, call=fail)
    with closing(AgentGroup(request, [AGENT])) as group:
        assert group.wait(60) == Exit(code=0), lines
    assert lines == ["stdout cluster_id failed: AssertionError: cluster_id"]


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


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGTERM, Cause.PREEMPTED), (signal.SIGURG, Cause.TIME_LIMIT)])
def test_signals_of_the_engine_preempt_the_workers(request_for: Any, number: int, cause: Cause) -> None:
    request, lines = request_for(WAITS)
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        group.processes[0].send_signal(number)
        end = group.wait(60)
        assert end and (end.code, end.cause) == (0, cause)


def test_a_preemption_by_the_launcher_names_its_cause(request_for: Any) -> None:
    request, lines = request_for(WAITS)
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        other = threading.Thread(target=group.preempt_for, args=[Cause.PREEMPTED, "by trial 9"])
        other.start()
        end = group.wait(60)
        other.join()
        group.preempt_for(Cause.TIME_LIMIT, "too late")
        assert group.wait(0) == end == Exit(code=0, cause=Cause.PREEMPTED, message="by trial 9")
    assert lines == ["stdout ready", "stdout runner"]


def test_workers_that_ignore_a_preemption_are_killed(request_for: Any) -> None:
    request, lines = request_for("import time; print('ready', flush=True); time.sleep(1000)")
    with closing(AgentGroup(request, [AGENT])) as group:
        wait_for_line(lines, group, "ready")
        group.preempt_for(Cause.TIME_LIMIT, "the window has closed", kill_after=0.1)
        assert group.wait(60) == Exit(code=-9, cause=Cause.TIME_LIMIT, message="the window has closed")


def test_a_preemption_before_the_start_ends_the_launch(request_for: Any) -> None:
    request, _ = request_for("pass")
    with closing(AgentGroup(request, [["sleep", "1000"]])) as group:
        group.preempt_for(Cause.PREEMPTED, "by trial 9")
        assert group.wait(1) == Exit(code=1, cause=Cause.PREEMPTED, message="by trial 9")
        group.terminate()


def test_a_preemption_after_the_end_changes_nothing(request_for: Any) -> None:
    request, _ = request_for("import sys; sys.exit(3)")
    with closing(AgentGroup(request, [AGENT])) as group:
        assert group.wait(60) == Exit(code=3)
        group.preempt_for(Cause.PREEMPTED, "by trial 9")
        assert group.wait(0) == Exit(code=3)


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
        ([sys.executable, "-I", "-S", "-m", "det_core.launch.agent_program"], "; install det-core 0"),
        (["sh", "-c", "exec nice no-python3"], "; install det-core 0"),
    ],
)
def test_a_command_that_starts_no_agent_says_why(request_for: Any, command: list[str], message: str) -> None:
    request, _ = request_for("pass")
    with closing(AgentGroup(request, [command])) as group:
        end = group.wait(60)
    assert end and end.cause is Cause.NOT_STARTED
    assert message in end.message


def test_an_agent_that_does_not_come_is_given_up(request_for: Any) -> None:
    request, _ = request_for("pass")
    with closing(AgentGroup(request, [["sleep", "1000"]], start_seconds=0.5)) as group:
        end = group.wait(60)
        assert end and (end.cause, end.message) == (Cause.NOT_STARTED, "the nodes were not ready after 0 s")
        group.terminate()


def test_a_launch_that_starts_can_be_withdrawn(request_for: Any) -> None:
    request, _ = request_for("pass")
    with closing(AgentGroup(request, [["sleep", "1000"]])) as group:
        assert group.status().phase is Phase.STARTING
        group.preempt()
        end = group.wait(1)
        assert end and end.cause is Cause.NOT_STARTED
        group.terminate()


def test_banners_are_logged_and_do_no_harm(request_for: Any) -> None:
    request, lines = request_for("print('worker')")
    banner = ["sh", "-c", 'echo Welcome; echo "det: no message"; exec "$@"', "sh", *AGENT]
    with closing(AgentGroup(request, [banner])) as group:
        assert group.wait(60) == Exit(code=0)
    assert lines == ["det Welcome", "det det: no message", "stdout worker"]


def test_nodes_know_each_other(request_for: Any) -> None:
    script = (
        "import det_core as det; info = det.get_cluster_info(); r = info.rendezvous\n"
        "print(r.container_rank, r.container_addrs, r.container_slot_counts, info.slot_ids, info.agent_id, r.port > 0)"
    )
    request, lines = request_for(script, slots=4)
    nodes = [[*AGENT, "--node", str(index)] for index in range(2)]
    with closing(AgentGroup(request, nodes, hosts=["127.0.0.1", "localhost"])) as group:
        assert group.wait(60) == Exit(code=0)
        assert group.status().nodes == ["127.0.0.1", "localhost"]
    assert sorted(lines) == [
        "stdout 0 ['127.0.0.1', 'localhost'] [2, 2] [0, 1] 127.0.0.1 True",
        "stdout 1 ['127.0.0.1', 'localhost'] [2, 2] [0, 1] localhost True",
    ]


ALL_NODES = """
import os, subprocess, sys, threading

def relay(index, agent):
    for line in agent.stdout:
        sys.stdout.buffer.write(b"%d: %s" % (index, line))
        sys.stdout.buffer.flush()

command = [sys.executable, "-m", "det_core.launch.agent_program"]
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
    script = "import det_core as det; info = det.get_cluster_info(); print(info.agent_id, 'x' * 3000)"
    request, lines = request_for(script, slots=2)
    with closing(AgentGroup(request, [[sys.executable, "-c", ALL_NODES]], nodes=2)) as group:
        assert group.wait(60) == Exit(code=0), lines
        assert group.status().nodes == ["n0", "n1"]
    assert sorted(lines) == [f"stdout n{index} {'x' * 3000}" for index in range(2)]


def test_a_failing_node_ends_the_others(request_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.launch.agent_group._FAILURE_GRACE", 0.5)
    script = (
        "import det_core as det, time, sys\nif det.get_cluster_info().container_rank: sys.exit(3)\ntime.sleep(1000)"
    )
    request, _ = request_for(script, slots=2)
    nodes = [[*AGENT, "--node", str(index)] for index in range(2)]
    with closing(AgentGroup(request, nodes)) as group:
        assert group.wait(60) == Exit(code=3)


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


def test_workers_end_soon_after_their_runner(tmp_path: Path) -> None:
    """The runner is killed without any chance to say so."""
    (tmp_path / "code").mkdir()
    runner = f"""if True:
        import sys
        from pathlib import Path
        from det_core.interfaces.launcher import PYTHON, LaunchRequest
        from det_core.launch.agent_group import AgentGroup
        from det_core.launch.context_archive import pack_context_dir
        request = LaunchRequest(
            key="k",
            argv=[PYTHON, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"],
            code=pack_context_dir(Path({str(tmp_path / "code")!r})),
            info={{"cluster.json": {{}}}},
            slots=1,
            log=lambda rank, stream, text: print(text, flush=True),
            call=lambda method, body: b"",
        )
        group = AgentGroup(request, [{AGENT!r}])
        group.wait(100)
    """
    with subprocess.Popen([sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    wait_for(lambda: all(process_has_ended(child.pid) for child in started), PROMISED + SLACK)


def test_messages_are_short_lines() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as stream:
        messages.MessageWriter(stream).send("log", text="ä\n" * 5000)
    with os.fdopen(read, "rb") as stream:
        lines = stream.readlines()
    assert max(map(len, lines)) <= 900
    assert [message["text"] for message in messages.read_messages(lines) if isinstance(message, dict)] == ["ä\n" * 5000]


@pytest.mark.parametrize(
    ("line", "message"),
    [(b"det:.{}\n", "no object with a kind"), (b"det:.[1\n", "is damaged"), (b"det:.[]\n", "no object with a kind")],
)
def test_damaged_messages_are_refused(line: bytes, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        list(messages.read_messages([line]))


def test_the_largest_answer_of_the_tracking_store_fits_into_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is too large ends the connection to the node."""
    monkeypatch.setattr(remote, "MAX_BODY_BYTES", 3 << 20)
    small = runpy.run_path(messages.__file__)

    def transfer(size: int) -> list[dict[str, Any]]:
        body = small["pack_bytes"](bytes(size))
        return list(small["read_messages"](small["_lines_of"]({"kind": "answer", "id": 1, "body": body})))

    (answer,) = transfer(3 << 20)
    assert small["unpack_bytes"](answer["body"]) == bytes(3 << 20)
    with pytest.raises(LaunchError, match="more than 5 MiB"):
        transfer(4 << 20)


def test_endless_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGE", 1 << 20)
    with pytest.raises(LaunchError, match="more than 1 MiB"):
        list(messages.read_messages(b"det:+" + b"x" * 890 + b"\n" for _ in range(10_000)))
