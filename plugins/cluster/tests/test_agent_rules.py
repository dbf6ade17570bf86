"""Launches whose node agents the test plays: starts, ends, preemptions, and calls of the tracking store."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_cluster import _agent_command, _agent_node, agent_group
from det_cluster import _agent_messages as messages
from det_cluster.agent_group import AgentGroup

from det_core.errors import LaunchError, TrackingError
from det_core.interfaces.launcher import EXIT_DO_NOT_RESTART, Cause, Exit, LaunchRequest, Phase
from det_core.tracking import AGENT_URL
from det_core.version import __version__
from tests.waiting import wait_for

from .fake_agent import FakeAgent

Start = Callable[..., "tuple[AgentGroup, list[FakeAgent], list[str]]"]
OK = Exit(code=0)
PASSWORD = "hunter3"
"""Password of the tracking store."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function that starts a launch on nodes, whose agents it returns, with the lines of the log."""
    monkeypatch.setattr(agent_group, "_TICK", 0.02)
    monkeypatch.setattr(agent_group, "_LOST_SECONDS", 0.0)
    with ExitStack() as ending:

        def start(
            nodes: int = 1, *, slots: int = 2, call: Any = None, log: Any = None, commands: Any = None, **options: Any
        ) -> Any:
            lines: list[str] = []
            request = LaunchRequest(
                key="k",
                argv=["a", "b"],
                code=b"code",
                info={"cluster.json": {"x": 1, "master_url": f"postgresql://det:{PASSWORD}@db/det"}},
                env={"E": "v"},
                secrets={"0": "hunter2"},
                slots=slots,
                log=log or (lambda rank, stream, text: lines.append(f"{rank} {stream} {text}")),
                call=call or (lambda method, body: b""),
            )
            agents = [ending.enter_context(closing(FakeAgent(tmp_path, index))) for index in range(nodes)]
            commands = commands or [one.command for one in agents]
            group = ending.enter_context(closing(AgentGroup(request, commands, **options)))
            ending.callback(group.terminate)
            return group, agents, lines

        yield start


@pytest.mark.parametrize("name", ["DET_MASTER", "DET_MASTER_ADDR", "DET_TOKEN", "PGPASSWORD"])
def test_no_access_to_the_tracking_store_leaves_this_host(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Engines pass the variables of a command on to nodes, as ``srun`` does."""
    monkeypatch.setenv(name, f"postgresql://det:{PASSWORD}@db/det")
    monkeypatch.setenv("OTHER", "kept")
    group, (agent,), _ = start()
    agent.greet()
    wait_for(lambda: group.wait(0.02) or group.status().nodes)
    assert PASSWORD not in json.dumps(agent.order("start"))
    variables = psutil.Process(group.processes[0].pid).environ()
    assert (variables.get(name), variables["OTHER"]) == (None, "kept")


def test_the_workers_start_once_all_nodes_are_there(start: Start) -> None:
    group, (first, second), _ = start(2, slots=4)
    first.greet()
    assert group.wait(0.1) is None
    second.greet()
    assert group.wait(0.0) is None
    wait_for(lambda: group.wait(0.02) or group.status().nodes == ["n0", "n1"])
    for agent in (first, second):
        order = agent.order("start")
        assert messages.unpack_bytes(order["code"]) == b"code"
        assert {name: order[name] for name in ("key", "argv", "info", "env", "secrets")} == {
            "key": "k",
            "argv": ["a", "b"],
            "info": {"cluster.json": {"x": 1, "master_url": AGENT_URL}},
            "env": {"E": "v"},
            "secrets": {"0": "hunter2"},
        }
        assert (order["slot_ids"], order["port"]) == ([[0, 1], [0, 1]], 4000)
        assert (order["hosts"], order["names"]) == (["h0", "h1"], ["n0", "n1"])
    assert group.status().phase is Phase.STARTING
    first.say("started")
    assert group.wait(0.1) is None
    assert group.status().phase is Phase.STARTING
    second.say("started")
    wait_for(lambda: group.status().phase is Phase.RUNNING)
    first.end()
    assert group.wait(0.1) is None
    second.end()
    assert group.wait(60) == OK


def test_given_hosts_and_slots_replace_those_of_the_nodes(start: Start) -> None:
    group, (agent,), _ = start(1, hosts=["given"], slot_ids=[[3, 5]])
    agent.greet()
    wait_for(lambda: group.wait(0.02) or group.status().nodes == ["given"])
    order = agent.order("start")
    assert (order["hosts"], order["names"], order["slot_ids"], order["port"]) == (["given"], ["given"], [[3, 5]], None)


def test_a_launch_that_a_node_refuses_is_not_tried_again(start: Start) -> None:
    group, (agent,), _ = start()
    agent.greet()
    group.wait(0.1)
    agent.end(1, "not started", "n0 sees no directory", refused=True)
    for _ in range(2):
        with pytest.raises(LaunchError, match="n0 sees no directory"):
            group.wait(60)


def test_an_agent_that_is_two_releases_away_is_refused(start: Start) -> None:
    group, (agent,), _ = start()
    agent.greet(protocols=[3, 4], version="9.9")
    problem = (
        f"h0 speaks the protocols 3 and 4 (det-core 9.9), expected one of 1 and 2 (det-core {__version__}); "
        "install the same release on all nodes"
    )
    assert group.wait(60) == Exit(code=1, cause=Cause.NOT_STARTED, message=problem)


@pytest.mark.parametrize(
    ("hello", "chosen"),
    [({}, 1), ({"protocols": [1, 2]}, 2), ({"protocols": [2, 3]}, 2), ({"protocols": [3]}, None)],
    ids=["release before", "same release", "next release", "release after the next"],
)
def test_both_sides_speak_the_newest_protocol_that_both_know(hello: dict[str, Any], chosen: int | None) -> None:
    assert messages.choose_protocol({"protocol": 1, **hello}) == chosen


@pytest.fixture
def running(start: Start) -> Callable[..., tuple[AgentGroup, list[FakeAgent], list[str]]]:
    """Return `start` for launches whose workers run."""

    def run(nodes: int = 1, **options: Any) -> tuple[AgentGroup, list[FakeAgent], list[str]]:
        group, agents, lines = start(nodes, **options)
        for agent in agents:
            agent.greet()
        wait_for(lambda: group.wait(0.02) or group.status().nodes)
        for agent in agents:
            agent.order("start")
            agent.say("started")
        wait_for(lambda: group.status().phase is Phase.RUNNING)
        return group, agents, lines

    return run


def test_lines_are_logged_as_they_come(running: Start) -> None:
    group, (agent,), lines = running()
    agent.say("log", rank=None, stream="stdout", text="é" * 3000)
    agent.replies.write(b"Welcome\r\ndet: no message\n")
    agent.say("log", rank=3, stream="stderr", text="last")
    agent.end(7)
    assert group.wait(60) == Exit(code=7)
    assert lines == [f"None stdout {'é' * 3000}", "None det Welcome", "None det det: no message", "3 stderr last"]


@pytest.mark.parametrize(("body", "answer"), [(b"body", b"<body>"), (b"fail", None)])
def test_calls_are_answered(running: Start, body: bytes, answer: bytes | None) -> None:
    def call(method: str, body: bytes) -> bytes:
        if body == b"fail":
            raise ValueError("no")
        return b"<" + body + b">"

    _, (_, second), _ = running(2, call=call)
    second.say("call", id=5, method="trial", body=messages.pack_bytes(body))
    found = second.order("answer")
    assert (found["node"], found["id"]) == (1, 5)
    received = messages.unpack_bytes(found["body"])
    if answer:
        assert received == answer
    else:
        assert TrackingError.__name__ in str(json.loads(received)) and "trial failed: ValueError: no" in str(received)


def test_the_first_failure_is_the_end_and_ends_the_others(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_FAILURE_GRACE", 0.2)
    group, (first, second), _ = running(2)
    began = time.monotonic()
    second.end(3)
    wait_for(lambda: group.wait(0.0) or group._launch.is_killed)
    assert time.monotonic() - began >= 0.2
    first.order("kill")
    first.end(-9)
    assert group.wait(60) == Exit(code=3)


def test_a_failure_that_every_restart_would_meet_comes_before_its_consequences(running: Start) -> None:
    group, (first, second), _ = running(2)
    second.end(1)
    wait_for(lambda: group.wait(0.0) or group._nodes[1].end)
    first.end(EXIT_DO_NOT_RESTART)
    assert group.wait(60) == Exit(code=EXIT_DO_NOT_RESTART)


def test_a_success_is_no_reason_to_end_the_others(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_FAILURE_GRACE", 0.0)
    group, (first, second), _ = running(2)
    second.end(0)
    assert group.wait(0.1) is None
    assert not group._launch.is_killed
    first.end(5, "time limit", "over")
    assert group.wait(60) == Exit(code=5, cause=Cause.TIME_LIMIT, message="over")


def test_a_preemption_is_a_request(running: Start) -> None:
    group, (agent,), _ = running()
    group.preempt()
    agent.order("preempt")
    agent.end()
    assert group.wait(60) == OK


def test_a_preemption_by_the_launcher_has_a_cause(running: Start) -> None:
    """The first one counts. Workers that are left are killed."""
    group, (agent,), _ = running()
    group.preempt_for(Cause.PREEMPTED, "by trial 9", kill_after=0.1)
    group.preempt_for(Cause.TIME_LIMIT, "too late")
    wait_for(lambda: group.wait(0.0) or group._launch.is_killed)
    agent.order("preempt")
    agent.order("kill")
    agent.end(-9)
    assert group.wait(60) == Exit(code=-9, cause=Cause.PREEMPTED, message="by trial 9")


def test_an_end_before_the_preemption_or_with_a_cause_is_kept(running: Start) -> None:
    group, (agent,), _ = running()
    agent.end(3)
    assert group.wait(60) == Exit(code=3)
    group.preempt_for(Cause.PREEMPTED, "by trial 9")
    assert group.wait(0) == Exit(code=3)


def test_the_cause_of_the_node_comes_first(running: Start) -> None:
    group, (agent,), _ = running()
    group.preempt_for(Cause.PREEMPTED, "by trial 9")
    assert group.wait(0.0) is None
    agent.end(-9, "out of memory", "too large")
    assert group.wait(60) == Exit(code=-9, cause=Cause.OUT_OF_MEMORY, message="too large")


@pytest.mark.parametrize("how", ["preempt", "kill", "preempt_for"])
def test_a_launch_whose_workers_have_not_started_is_withdrawn(start: Start, how: str) -> None:
    group, (first, second), _ = start(2)
    first.greet()
    wait_for(lambda: group._nodes[0].hello)
    getattr(group, how)(*([Cause.PREEMPTED, "by trial 9"] if how == "preempt_for" else []))
    end = group.wait(60)
    assert end and end.code == 1
    assert (end.cause, end.message) == (
        (Cause.PREEMPTED, "by trial 9")
        if how == "preempt_for"
        else (Cause.NOT_STARTED, "it was withdrawn before its start")
    )
    first.order("kill")
    assert wait_for(lambda: group.processes[1].poll()) == -15  # no agent reads orders there
    second.greet()
    assert group.wait(0) == end


def test_nodes_that_do_not_come_are_given_up(start: Start) -> None:
    group, (first, _), _ = start(2, start_seconds=100.0)
    first.greet()
    wait_for(lambda: group._nodes[0].hello)
    assert group.wait(0.0) is None
    group._give_up_at = time.monotonic()
    end = group.wait(60)
    assert end == Exit(code=1, cause=Cause.NOT_STARTED, message="the nodes were not ready after 100 s")
    first.order("kill")


def test_workers_that_are_not_started_are_given_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit begins when the last node is there, however long the launch has waited for its nodes."""
    group, (agent,), _ = start(1, start_seconds=math.inf)
    agent.greet()
    wait_for(lambda: group.wait(0.02) or group.status().nodes)
    agent.order("start")
    assert group.wait(0.1) is None
    monkeypatch.setattr(agent_group, "_PREPARE_SECONDS", 0.0)
    end = group.wait(60)
    problem = "the nodes were ready, but the workers were not started within 0 s"
    assert end == Exit(code=1, cause=Cause.NOT_STARTED, message=problem)
    agent.order("kill")


def test_a_node_whose_connection_ends_is_lost(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers have time to end before the trial starts again elsewhere."""
    monkeypatch.setattr(agent_group, "_LOST_SECONDS", 0.3)
    group, (agent,), _ = running()
    group.processes[0].kill()
    agent.hang_up()
    wait_for(lambda: group._nodes[0].end)
    lost = time.monotonic()
    end = group.wait(60)
    assert time.monotonic() - lost > 0.2
    assert end and (end.code, end.cause) == (1, Cause.NODE_LOST)
    assert end.message.endswith(" ended with code -9")


def test_a_command_ends_whoever_keeps_its_output(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the end of the launch nor `close` waits for a process that the command has left behind."""
    command = ["sh", "-c", "sleep 1000 & echo $!; exit 3"]
    group, _, lines = start(1, commands=[command] * 2, start_seconds=math.inf)
    wait_for(lambda: len(lines) == 2)
    monkeypatch.setattr(agent_group, "_KILL_SECONDS", 0.1)
    monkeypatch.setattr(_agent_command, "END_SECONDS", 0.1)
    end = group.wait(60)
    assert end and (end.code, end.cause) == (1, Cause.NOT_STARTED) and end.message.endswith(" ended with code 3")
    group.close()
    for line in lines:
        os.kill(int(line.split()[-1]), signal.SIGKILL)
    for command_ in group._commands:
        command_.join(time.monotonic() + 60)
    assert all(process.stdout.closed for process in group.processes if process.stdout)


def test_a_command_without_output_is_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_KILL_SECONDS", 0.1)
    monkeypatch.setattr(_agent_command, "END_SECONDS", 0.1)
    group, _, _ = start(1, commands=[["sh", "-c", "exec sleep 1000 >&- 2>&-"]], start_seconds=math.inf)
    end = group.wait(60)
    assert end and (end.code, end.cause) == (1, Cause.NOT_STARTED) and end.message.endswith(" closed its output")


def test_nodes_are_closed_together(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that do not end by themselves share one time limit."""
    monkeypatch.setattr(agent_group, "_KILL_SECONDS", 1.0)
    monkeypatch.setattr(_agent_command, "END_SECONDS", 1.0)
    group, agents, _ = running(4, slots=4)
    for agent in agents:
        agent.end(0)
    assert group.wait(60) == OK
    began = time.monotonic()
    group.close()
    assert time.monotonic() - began < 4  # not a second for each
    assert {process.poll() for process in group.processes} == {-signal.SIGTERM}


def test_a_silent_node_is_lost(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    group, (agent,), _ = running()
    assert group.wait(0.1) is None
    monkeypatch.setattr(_agent_node, "_SILENCE_SECONDS", 0.05)
    end = group.wait(60)
    assert end and end.cause is Cause.NODE_LOST and end.message == "n0 has been silent for 0 s"
    agent.hang_up()


def test_each_part_of_a_message_of_a_node_is_a_sign_of_life(running: Start) -> None:
    group, (agent,), _ = running()
    heard_at = group._nodes[0].heard_at
    agent.replies.write(next(messages._lines_of({"kind": "log", "text": "x" * 2000})))
    wait_for(lambda: group._nodes[0].heard_at > heard_at)


def test_messages_that_wait_for_the_log_are_no_silence(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log waits for a database that is unavailable, for example."""
    monkeypatch.setattr(messages, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(_agent_node, "_SILENCE_SECONDS", 0.2)
    reached, released = threading.Event(), threading.Event()

    def log(rank: int | None, stream: str, text: str) -> None:
        reached.set()
        assert released.wait(60)

    group, (agent,), _ = running(log=log)
    agent.say("log", rank=None, stream="stdout", text="x")
    assert reached.wait(60)
    assert group.wait(0.5) is None
    released.set()
    assert group.wait(0.1) is None
    end = group.wait(60)
    assert end and end.cause is Cause.NODE_LOST
    agent.hang_up()


def test_signs_of_life_wait_for_nobody(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that waits for the end of the launch may itself wait for the tracking store."""
    monkeypatch.setattr(messages, "BEAT_SECONDS", 0.01)
    _, (agent,), _ = running()
    assert [next(agent._messages)["kind"] for _ in range(3)] == ["alive"] * 3


def test_a_damaged_message_ends_the_connection(running: Start) -> None:
    group, (agent,), _ = running()
    agent.replies.write(b"det:.{}\n")
    end = group.wait(60)
    assert end and end.cause is Cause.NODE_LOST and "no object with a kind" in end.message


def test_a_kill_is_an_order_at_first(running: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands whose agents do not obey are ended."""
    monkeypatch.setattr(agent_group, "_KILL_SECONDS", 0.2)
    monkeypatch.setattr(_agent_command, "END_SECONDS", 0.2)
    group, (agent,), _ = running()
    group._kill_at = time.monotonic()
    assert group.wait(0.05) is None
    agent.order("kill")
    end = group.wait(60)
    assert end and end.cause is Cause.NODE_LOST
    assert group.processes[0].poll() == -15


def test_a_runner_that_one_node_has_replaced_ends_no_workers_on_the_others(start: Start) -> None:
    """A runner that was frozen may still reach some nodes when the next one has adopted others."""
    group, agents, _ = start(2, reconnect_seconds=60.0)
    for number, agent in enumerate(agents):
        agent.greet(agent=str(number), started=False)
    wait_for(lambda: group.wait(0.02) or group.status().nodes == ["n0", "n1"])
    for agent in agents:
        agent.order("welcome")
        agent.order("start")
        agent.say("started")
    agents[0].say("replaced")
    wait_for(lambda: group.wait(0.02) or group._launch.is_replaced)
    group.preempt()
    group._kill_at = 0.0
    group.wait(0.05)
    assert {one["kind"] for one in agents[1].rest()} <= {"alive"}
