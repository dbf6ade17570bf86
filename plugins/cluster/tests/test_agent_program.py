"""Agent of a node in this process, whose runner the test plays."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import select
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from det_cluster import _agent_messages as messages
from det_cluster import agent_program
from det_cluster.agent_program import AgentProgram

from det_core.errors import DetError, LaunchDelayed, LaunchError, TrackingError
from det_core.interfaces.launcher import PYTHON, Exit
from det_core.launch.context_archive import EMPTY_CONTEXT
from det_core.launch.node_agent import explain_start_errors
from det_core.processes import process_has_ended
from det_core.tracking import AGENT_URL
from det_core.version import __version__
from tests.waiting import wait_for

SECRET = "0" * 32


class Runner:
    """Runner of the agent of the second of two nodes."""

    def __init__(self) -> None:
        read, self.pipe = os.pipe()
        self._lines = os.fdopen(read, "rb")
        self._writer = messages.MessageWriter(os.fdopen(self.pipe, "wb"))
        self.program = AgentProgram(self._writer, 1, "name", "host")
        self.exits: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Exit codes of the program."""
        self._messages = messages.read_messages(self._lines)
        self._early: list[dict[str, Any]] = []

    def message(self, *kinds: str) -> Mapping[str, Any]:
        """Return the next message of the agent, which has one of these kinds. Signs of life do not count.

        Lines that precede "started" count later.
        """
        skipped = {"alive", "log"} if kinds == ("started",) else {"alive"}
        early = []
        while (found := self._next())["kind"] in skipped - {*kinds}:
            if found["kind"] == "log":
                early.append(found)
        self._early += early
        assert found["kind"] in kinds, found
        return found

    def _next(self) -> dict[str, Any]:
        if self._early:
            return self._early.pop(0)
        found = next(self._messages)
        assert isinstance(found, dict)
        return found

    def start(self, script: str, *argv: str, **changes: Any) -> None:
        """Let the agent start a shell."""
        self.program.obey(
            {
                "kind": "start",
                "key": "k",
                "argv": [*(argv or ("/bin/sh", "-c")), script],
                "code": messages.pack_bytes(EMPTY_CONTEXT),
                "info": {"cluster.json": {"cluster_id": "c", "master_url": AGENT_URL}, "trial.json": {"trial_id": 7}},
                "env": {"GIVEN": "value"},
                "secrets": {SECRET: "hunter2"},
                "slot_ids": [[0, 1], [2, 3]],
                "hosts": ["h0", "h1"],
                "names": ["n0", "n1"],
                "port": 4000,
                **changes,
            }
        )

    def pipe_is_full(self) -> bool:
        """Return whether the agent's messages fill the pipe."""
        return not select.select([], [self.pipe], [], 0)[1]

    def lines(self) -> tuple[list[str], tuple[int, str, str]]:
        """Return the lines until the end, and the end."""
        found = []
        while (message := self.message("log", "exit"))["kind"] == "log":
            found.append(message["text"])
        return found, (message["code"], message["cause"], message["message"])

    def close(self) -> None:
        self._writer.abandon()
        self._lines.close()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Runner]:
    """Return a runner whose agent ends a thread where it would end its process."""
    runner = Runner()

    def end(code: int) -> None:
        runner.exits.put(code)
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)  # pytest reports SystemExit, too
    monkeypatch.setattr(agent_program, "_TICK", 0.02)
    monkeypatch.setattr(agent_program, "count_gpus", lambda: 0)
    yield runner
    runner.program._lost.set()
    for thread in threading.enumerate():
        if thread.name in ("det-run", "det-runner-watch"):
            thread.join(60)
    runner.close()


def test_a_node_introduces_itself(runner: Runner) -> None:
    runner.program.greet()
    hello = runner.message("hello")
    assert {name: hello[name] for name in ("protocol", "protocols", "version", "name", "host")} == {
        "protocol": 1,
        "protocols": [1, 2],
        "version": __version__,
        "name": "name",
        "host": "host",
    }
    assert 0 < hello["port"] < 1 << 16


def test_workers_find_what_the_runner_has_sent(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("DET_TOKEN", "of a person")
    runner.start(
        'cat "$DET_INFO_DIR/rendezvous.json"; echo; cat "$DET_INFO_DIR/cluster.json"; echo; '
        'echo "$GIVEN $DET_TRIAL_ID $DET_CHIEF_IP $OMP_NUM_THREADS $DET_ENGINE_SIGNALS '
        '$DET_MASTER $DET_MASTER_ADDR<$DET_TOKEN>"; '
        f'cat "$DET_SECRETS_DIR/{SECRET}"'
    )
    runner.message("started")
    (rendezvous, cluster, variables, secret), end = runner.lines()
    assert json.loads(rendezvous) == {
        "container_addrs": ["h0", "h1"],
        "container_rank": 1,
        "container_slot_counts": [2, 2],
        "port": 4000,
    }
    assert json.loads(cluster) == {"cluster_id": "c", "master_url": AGENT_URL, "agent_id": "n1", "slot_ids": [2, 3]}
    assert (variables, secret) == ("value 7 h0 4 1 agent: agent:<>", "hunter2")
    assert end == (0, "workers", "")
    assert runner.exits.get(timeout=60) == 0


@pytest.mark.parametrize(
    ("cpus", "slots", "threads"), [(8, [2, 3], "4"), (8, [2], "8"), (0, [2], "16"), (None, [2, 3], "16")]
)
def test_workers_share_the_cores_of_their_launch(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, cpus: int | None, slots: list[int], threads: str
) -> None:
    """An engine may have set the variable for all workers together."""
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    runner.program._cpus = cpus
    runner.start("echo $OMP_NUM_THREADS", slot_ids=[[0], slots])
    runner.message("started")
    assert runner.lines() == ([threads], (0, "workers", ""))


def test_a_node_needs_no_home_and_keeps_nothing(
    runner: Runner, slots_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines export DET_HOME of the runner, where the node may have no such file system."""
    monkeypatch.setenv("DET_HOME", "/proc/home")
    runner.start("ls $DET_SLOTS_DIR")
    runner.message("started")
    assert runner.lines() == (["lock-k-node-1"], (0, "workers", ""))
    assert list(slots_directory.iterdir()) == []


def test_orders_for_another_node_are_ignored(runner: Runner) -> None:
    runner.program.obey({"kind": "kill", "node": 0})
    assert runner.exits.empty()
    with pytest.raises(SystemExit):
        runner.program.obey({"kind": "kill", "node": 1})  # nothing was started
    assert runner.exits.get(timeout=60) == 1


@pytest.mark.parametrize(("gpus", "starts"), [(0, True), (3, False), (4, True)])
def test_a_node_with_too_few_gpus_is_named(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, gpus: int, starts: bool
) -> None:
    monkeypatch.setattr(agent_program, "count_gpus", lambda: gpus)
    monkeypatch.setattr(agent_program, "gpu_variables", lambda slots: {})
    runner.start("exit 5")
    if starts:
        runner.message("started")
        assert runner.lines()[1] == (5, "workers", "")
    else:
        problem = f"n1 has {gpus} GPUs, but the launch needs the slots [2, 3] there"
        assert runner.lines()[1] == (1, "not started", problem)


def test_a_program_or_code_that_cannot_be_used_is_no_failure_of_the_trial(runner: Runner) -> None:
    runner.start("true", code=messages.pack_bytes(b"no archive"))
    code, cause, message = runner.lines()[1]
    assert (code, cause) == (1, "not started")
    assert message.startswith("cannot start '/bin/sh': the recorded code cannot be unpacked into ")


class BrokenAgent:
    """Agent with a defect that shows when its launch starts, runs or is closed."""

    def __init__(self, when: str) -> None:
        self.when = when
        self._break("start")

    def wait(self, timeout: float) -> Exit:
        self._break("wait")
        return Exit(code=0)

    def close(self) -> None:
        self._break("close")

    def _break(self, when: str) -> None:
        if when == self.when:
            raise KeyError(f"a defect of {when}")


@pytest.mark.parametrize(
    ("when", "cause"),
    [("gpus", "not started"), ("start", "not started"), ("wait", "node lost"), ("close", "node lost")],
)
def test_an_error_of_the_agent_is_the_end_of_the_launch(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, when: str, cause: str
) -> None:
    monkeypatch.setattr(agent_program, "NodeAgent", lambda *_, **options: BrokenAgent(when))
    if when == "gpus":
        monkeypatch.setattr(agent_program, "count_gpus", lambda: BrokenAgent("start"))
    runner.start("true")
    if cause == "node lost":
        runner.message("started")
    assert runner.lines()[1] == (1, cause, f"KeyError: 'a defect of {'start' if when == 'gpus' else when}'")
    assert runner.exits.get(timeout=60) == 0


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGTERM, "preempted"),
        *((number, "time limit") for number in (signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)),
        (None, "workers"),
    ],
)
def test_a_signal_of_the_engine_is_a_preemption_with_a_cause(runner: Runner, number: int | None, cause: str) -> None:
    """The first signal counts."""
    waits = "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['DET_AGENT_SOCKET']); "
    runner.start(f"{waits}print(s.makefile().readline())", PYTHON, "-I", "-S", "-c")
    runner.message("started")
    if number:
        runner.program.stop_on_signal(number, None)
        runner.program.stop_on_signal(signal.SIGTERM, None)
    else:
        runner.program.obey({"kind": "preempt"})
    lines, end = runner.lines()
    assert lines[0] == "preempt"
    message = f"the node's agent received {signal.Signals(number).name}" if number else ""
    assert end == (0, cause, message)


class LateAgent:
    """Agent of workers that have ended, whose last line it delivers when it is closed."""

    def __init__(self, program: AgentProgram) -> None:
        self.program = program

    def wait(self, timeout: float) -> Exit:
        return Exit(code=3)

    def close(self) -> None:
        self.program._send_line(0, "stdout", "the last line")


def test_the_last_lines_arrive_before_the_end(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_program, "NodeAgent", lambda *_, **options: LateAgent(runner.program))
    runner.start("true")
    runner.message("started")
    assert runner.lines() == (["the last line"], (3, "workers", ""))


def test_a_kill_ends_the_workers(runner: Runner) -> None:
    runner.start("echo ready; sleep 1000; true")
    runner.message("started")
    assert runner.message("log")["text"] == "ready"
    runner.program.obey({"kind": "kill"})
    assert runner.lines()[1] == (-9, "workers", "")


def test_workers_end_after_their_runner(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_program, "GRACE", 0.1)
    runner.start("sleep 1000; true")
    runner.message("started")
    runner.program.lose_runner()
    assert runner.exits.get(timeout=60) == 0


def test_without_workers_a_lost_runner_is_the_end(runner: Runner) -> None:
    with pytest.raises(SystemExit):
        runner.program.lose_runner()
    assert runner.exits.get(timeout=60) == 1


def test_a_silent_runner_is_lost(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BEAT_SECONDS", 0.01)
    runner.program.greet()
    for _ in range(3):
        runner.message("hello", "alive")
    assert runner.exits.empty()
    monkeypatch.setattr(messages, "SILENCE_SECONDS", 0.05)
    assert runner.exits.get(timeout=60) == 1


def test_each_part_of_a_message_is_a_sign_of_life(runner: Runner) -> None:
    """The code of a trial may take longer than the time after which a silent runner is lost."""
    parts = list(messages._lines_of({"kind": "kill", "node": 0, "code": "x" * 2000}))
    heard = []

    def arrive() -> Iterator[bytes]:
        for part in parts:
            yield part
            heard.append(runner.program._heard_at)

    runner.program.follow(arrive())
    assert len(set(heard)) == len(parts) == 3


CALLS_AND_PRINTS = """
import os, socket, struct
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["DET_AGENT_SOCKET"])
agent.sendall(b"tracking store\\n" + struct.pack("!BI", 5, 0) + b"trial")
with open(os.environ["PID"], "w") as file:
    print(os.getpid(), file=file)
while True:
    print("x" * 1000)
"""


@pytest.mark.parametrize("when", ["before the workers start", "by the workers"])
def test_a_silent_runner_is_lost_however_full_its_pipe_is(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when: str
) -> None:
    """Neither the loss nor the end of the workers waits for the pipe, not even with a call of a worker on its way."""
    monkeypatch.setattr(agent_program, "GRACE", 0.1)
    runner.program.greet()
    runner.message("hello")
    if when == "before the workers start":
        os.write(runner.pipe, bytes(fcntl.fcntl(runner.pipe, fcntl.F_GETPIPE_SZ)))
    pid = tmp_path / "pid"
    runner.start(CALLS_AND_PRINTS, PYTHON, "-I", "-S", "-c", env={"PID": str(pid)})
    wait_for(lambda: runner.program._agent and pid.exists() and pid.read_text() and runner.pipe_is_full())
    monkeypatch.setattr(messages, "SILENCE_SECONDS", 0.0)
    assert runner.exits.get(timeout=60) == 0
    assert process_has_ended(int(pid.read_text()))


def test_calls_wait_for_their_own_answers(runner: Runner) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(runner.program._relay_call, f"call-{number}", b"body") for number in range(2)]
        found = [runner.message("call") for _ in calls]
        assert {messages.unpack_bytes(one["body"]) for one in found} == {b"body"}
        for one in reversed(found):
            answer = messages.pack_bytes(one["method"].encode())
            runner.program.obey({"kind": "answer", "node": 1, "id": one["id"], "body": answer})
        assert [call.result(60) for call in calls] == [b"call-0", b"call-1"]
    runner.program.obey({"kind": "answer", "node": 1, "id": 99, "body": ""})  # too late


def test_a_call_without_an_answer_is_an_error(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_program, "_CALL_SECONDS", 0.05)
    with pytest.raises(TrackingError, match="the runner has not answered trial for 0 s"):
        runner.program._relay_call("trial", b"")


def test_calls_of_a_lost_runner_are_errors(runner: Runner) -> None:
    gone = "the runner is gone, so trial cannot be recorded"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runner.program._relay_call, "trial", b"")
        wait_for(lambda: runner.program._answers)
        with pytest.raises(SystemExit):
            runner.program.lose_runner()
        with pytest.raises(TrackingError, match=gone):
            waiting.result(60)
    with pytest.raises(TrackingError, match=gone):
        runner.program._relay_call("trial", b"")


def caused_by(error: Exception) -> DetError:
    summary = DetError("cannot unpack")
    summary.__cause__ = error
    return summary


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (LaunchDelayed("later"), LaunchDelayed, "^later$"),
        (LaunchError("never"), LaunchError, "^never$"),
        (TrackingError("no"), LaunchError, "^cannot start it: no$"),
        (OSError(28, "No space left on device"), LaunchDelayed, "^cannot start it: .*No space left on device"),
        (OSError(2, "No such file"), LaunchError, "^cannot start it: .*No such file"),
        (MemoryError(), LaunchDelayed, "^cannot start it: there is not enough memory$"),
        (caused_by(OSError(28, "full")), LaunchDelayed, "^cannot start it: cannot unpack$"),
        (caused_by(OSError(2, "gone")), LaunchError, "^cannot start it: cannot unpack$"),
    ],
    ids=["delayed", "refused", "other", "disk", "file", "memory", "disk below", "file below"],
)
def test_only_a_lack_of_resources_delays_a_launch(error: Exception, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as raised, explain_start_errors("it"):
        raise error
    assert type(raised.value) is kind


def test_a_node_that_does_not_see_the_checkpoints_refuses_the_launch(runner: Runner, tmp_path: Path) -> None:
    runner.start("true", marker=str(tmp_path / "elsewhere"))
    end = runner.message("exit")
    assert (end["cause"], end["refused"]) == ("not started", True)
    assert end["message"].startswith("the node n1 does not see the directory of checkpoint_storage; use a bucket")
