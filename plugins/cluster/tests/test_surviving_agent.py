"""Agents that outlive their connection with the runner, and train on meanwhile."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_cluster import _agent_messages as messages
from det_cluster import _surviving_agent, agent_group, agent_program
from det_cluster._kept_calls import KeptCalls
from det_cluster._surviving_agent import SurvivingAgent
from det_cluster.agent_group import AgentGroup
from det_testing.disturbed_experiment import DisturbedExperiment

from det_core.errors import TrackingError
from det_core.interfaces.launcher import PYTHON, Allocation, Cause, Exit, LaunchRequest, Phase
from det_core.launch.context_archive import EMPTY_CONTEXT
from det_core.launch.local import LocalLauncher
from det_core.tracking import open_store
from det_core.tracking.remote import RETURNED_NOTHING
from tests.waiting import wait_for

AGENT = [sys.executable, "-m", "det_cluster.agent_program"]
ANSWERS = {"cluster_id": b'{"returned": "the id"}'}


class Runner:
    """Runner of one launch on one node.

    Args:
        script: code of the worker.
        options: options of the group.
    """

    def __init__(self, script: str, **options: Any) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.calls: list[tuple[str, bytes]] = []
        request = LaunchRequest(
            key=f"test-{uuid.uuid4().hex}",
            argv=[PYTHON, "-c", script],
            code=EMPTY_CONTEXT,
            info={"cluster.json": {"cluster_id": "c"}, "trial.json": {}},
            slots=1,
            log=lambda rank, stream, text: (self.notes if stream == "det" else self.lines).append(text),
            call=self._call,
        )
        self.group = AgentGroup(request, [AGENT], **{"reconnect_seconds": 60.0, **options})

    def wait_for_line(self, text: str) -> None:
        wait_for(lambda: self.group.wait(0.02) or any(text in line for line in self.lines), seconds=60)
        assert any(text in line for line in self.lines), (self.lines, self.group.wait(0))

    def lose_connection(self) -> None:
        """Kill the command that connects this process with the agent, and wait until this is noticed."""
        self.group.processes[0].kill()
        wait_for(lambda: self.group.wait(0.02) or self.group.lost_nodes, seconds=60)

    def agent(self) -> psutil.Process:
        """Return the process of the agent."""
        words = {self.group._words[0][-1], "det_cluster._surviving_agent"}
        (found,) = (one for one in psutil.process_iter() if words <= _words(one))
        return found

    def _call(self, method: str, body: bytes) -> bytes:
        self.calls.append((method, body))
        return ANSWERS.get(method, RETURNED_NOTHING)


def _words(process: psutil.Process) -> set[str]:
    try:
        return set(process.cmdline())
    except psutil.Error:
        return set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_TICK", 0.02)
    monkeypatch.setattr(agent_group, "_LOST_SECONDS", 0.0)
    monkeypatch.setattr(agent_group, "_RECONNECT_SECONDS", 0.0)


TRAINS = """if True:
    import sys, time
    from det_core.tracking import open_store
    store, longest = open_store("agent:"), 0.0
    store.cluster_id
    for step in range(150):
        began = time.monotonic()
        print("step", step, flush=True)
        store.set_trial_progress(7, 1, step / 150)
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.02)
    print("longest", longest, flush=True)
    store.set_trial_metadata(7, 1, {"after": "all reports"})
    sys.exit(3)
"""


@pytest.mark.integration
def test_workers_train_on_without_a_connection_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line and every report arrives once, in order. The worker does not notice anything."""
    monkeypatch.setattr(agent_group, "_RECONNECT_SECONDS", 1.0)
    runner = Runner(TRAINS)
    with closing(runner.group) as group:
        for step in (10, 60, 110):
            runner.wait_for_line(f"step {step}")
            runner.lose_connection()
            assert group.status().phase is Phase.RUNNING and "no connection to" in group.status().message
        assert group.wait(60) == Exit(code=3), runner.lines
    assert [note.split()[:2] for note in runner.notes] == [["no", "connection"], ["connected", "to"]] * 3
    *steps, longest = runner.lines
    assert steps == [f"step {step}" for step in range(150)]
    assert float(longest.split()[1]) < 0.9
    assert runner.calls[-1][0] == "set_trial_metadata"
    reports = dict.fromkeys(body for method, body in runner.calls if method == "set_trial_progress")
    found = [json.loads(body.partition(b"\n")[2])["progress"] for body in reports]
    assert found == [step / 150 for step in range(150)]


WAITS = """if True:
    import os, sys, threading
    from det_core.core.agent_channel import AgentChannel, SOCKET
    stop = threading.Event()
    channel = AgentChannel(os.environ[SOCKET], lambda why: (print(why, flush=True), stop.set()))
    print("ready", os.getpid(), flush=True)
    stop.wait(60)
"""


@pytest.mark.integration
def test_a_request_to_stop_reaches_the_workers_once_there_is_a_connection() -> None:
    runner = Runner(WAITS)
    with closing(runner.group) as group:
        runner.wait_for_line("ready")
        runner.lose_connection()
        group.preempt()
        assert group.wait(60) == Exit(code=0)
    assert runner.lines[1:] == ["runner"]


@pytest.mark.integration
def test_workers_end_when_the_time_is_over_and_only_then_the_node_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_group, "_RECONNECT_SECONDS", 1000.0)
    monkeypatch.setattr(messages, "SILENCE_SECONDS", 0.0)
    runner = Runner(WAITS, reconnect_seconds=1.0)
    with closing(runner.group) as group:
        runner.wait_for_line("ready")
        worker = psutil.Process(int(runner.lines[0].split()[1]))
        runner.group._nodes[0].tried_at = time.monotonic()
        lost = time.monotonic()
        runner.lose_connection()
        end = group.wait(60)
        assert time.monotonic() - lost > 1.0 + agent_group.GRACE
        assert end and end.cause is Cause.NODE_LOST and "no connection for 1" in end.message, end
        assert not worker.is_running()


@pytest.mark.integration
def test_an_agent_that_has_died_is_found_at_the_next_connection() -> None:
    runner = Runner(WAITS)
    with closing(runner.group) as group:
        runner.wait_for_line("ready")
        runner.agent().kill()
        end = group.wait(30)
        assert end and end.cause is Cause.NODE_LOST and "has ended" in end.message, end


@pytest.mark.integration
def test_an_engine_proves_the_end_of_a_node() -> None:
    runner = Runner(WAITS)
    with closing(runner.group) as group:
        runner.wait_for_line("ready")
        group.confirm_end(0, Exit(code=1, cause=Cause.PREEMPTED))  # there is a connection
        assert group.wait(0.1) is None
        agent = runner.agent()
        runner.group._words[0] = ["false"]
        runner.lose_connection()
        preempted = Exit(code=1, cause=Cause.PREEMPTED, message="pod x was evicted")
        group.confirm_end(0, preempted)
        assert group.wait(0) == preempted
        agent.kill()


@pytest.mark.integration
def test_an_experiment_has_the_undisturbed_result(
    det_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost again and again, while the trial reports, saves checkpoints and ends."""
    monkeypatch.setattr(agent_group, "_RECONNECT_SECONDS", 0.5)
    groups: list[AgentGroup] = []

    def start(_: object, request: LaunchRequest) -> Allocation:
        groups.append(AgentGroup(request, [AGENT], reconnect_seconds=60.0))
        return groups[-1]

    monkeypatch.setattr(LocalLauncher, "start", start)
    with open_store() as store:
        experiment = DisturbedExperiment(store, tmp_path, {"type": "local"})

        def disturb() -> None:
            experiment.wait_for_worker()
            (group,) = groups
            experiment.release.touch()
            while group.processes[0].poll() is None or group.lost_nodes:
                group.processes[0].kill()
                time.sleep(1.0)  # as long as there is a connection in between

        experiment.run(disturb)
        experiment.require_undisturbed_result(restarts=0, interruptions=0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list with the time of the node's clock."""
    now = [100.0]
    monkeypatch.setattr(_surviving_agent, "_read_clock", lambda: now[0])
    return now


class Played:
    """Connection to an agent in this process, on which a test plays the runner."""

    def __init__(self, agent: SurvivingAgent) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._agent = ours, agent
        self._lines = ours.makefile("rb")
        self._messages = messages.read_messages(self._lines)
        self.thread = threading.Thread(target=agent.talk, args=(theirs,), daemon=True)
        self.thread.start()
        self.hello = self.receive("hello")

    def receive(self, kind: str) -> Mapping[str, Any]:
        while (found := next(self._messages))["kind"] == "alive":  # type: ignore[index]
            pass
        assert isinstance(found, dict) and found["kind"] == kind, found
        return found

    def send(self, kind: str, **fields: Any) -> None:
        self._socket.sendall(b"".join(messages._lines_of({"kind": kind, **fields})))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()
        self.thread.join(60)


@pytest.fixture
def agent(clock: list[float]) -> Iterator[SurvivingAgent]:
    """Return an agent whose workers run."""
    agent = SurvivingAgent(60.0, node=0, name="n0", host="h0")
    agent._is_ordered = True
    for kept, deliver in ((agent._reports, agent._deliver_report), (agent._lines, agent._deliver_lines)):
        threading.Thread(target=agent._drain, args=(kept, 1, deliver), daemon=True).start()
    yield agent
    agent._lost.set()
    agent._reports.close()
    agent._lines.close()


def test_a_delayed_message_gives_no_new_time(agent: SurvivingAgent, clock: list[float]) -> None:
    """A proxy may deliver it long after the runner has started the trial elsewhere."""
    with closing(Played(agent)) as runner:
        clock[0] = 103.0
        runner.send("welcome", at=7000.0)
        wait_for(lambda: agent._welcomed)
        clock[0] = 500.0
        runner.send("alive", at=7010.0)
        wait_for(lambda: agent._lease_at == 110.0)
    clock[0] = 165.0
    assert agent._grace() == 110.0 + 60.0 + agent_group.GRACE - 165.0
    clock[0] = 1000.0
    assert agent._grace() == 0.0


def test_a_runner_that_connects_and_does_not_answer_gives_no_new_time(
    agent: SurvivingAgent, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not hear this node, and start the trial elsewhere."""
    monkeypatch.setattr(agent_program, "_TICK", 0.01)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    threading.Thread(target=agent._watch_runner, daemon=True).start()
    with closing(Played(agent)) as runner:
        runner.send("alive", at=1.0)
        assert not agent._lost.wait(0.1)
        clock[0] = 161.0
        assert agent._lost.wait(60)


def test_a_later_runner_replaces_an_earlier_one_for_good(agent: SurvivingAgent) -> None:
    """The earlier one may have been frozen, and does not know that it has lost the experiment."""
    with closing(Played(agent)) as first, closing(Played(agent)) as next_one:
        first.send("welcome", at=0.0)
        wait_for(lambda: agent._welcomed)
        next_one.send("welcome", at=0.0, runner=5.0)
        first.thread.join(60)  # its connection was closed
        waiting, answers = in_background(lambda: agent._relay_call("cluster_id", b""))
        call = next_one.receive("call")
        for number in (0.0, 4.0):
            with closing(Played(agent)) as earlier:
                earlier.send("welcome", at=0.0, runner=number)
                earlier.receive("replaced")
        next_one.send("answer", id=call["id"], body=messages.pack_bytes(b"it"))
        waiting.join(60)
    assert answers == [b"it"]


def in_background(call: Callable[[], bytes]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(call())
        except TrackingError as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answers


def test_reports_are_kept_and_other_calls_wait_for_them(agent: SurvivingAgent) -> None:
    assert agent._relay_call("report_metrics", b"1") == agent._relay_call("report_metrics", b"2") == RETURNED_NOTHING
    waiting, answers = in_background(lambda: agent._relay_call("complete_checkpoint", b"3"))
    with closing(Played(agent)) as runner:
        runner.send("welcome", at=0.0)
        for body in (b"1", b"2", b"3"):
            call = runner.receive("call")
            assert messages.unpack_bytes(call["body"]) == body and not answers
            runner.send("answer", id=call["id"], body=messages.pack_bytes(RETURNED_NOTHING))
        waiting.join(60)
    assert answers == [RETURNED_NOTHING]


def test_a_call_without_an_answer_is_repeated_with_its_number(agent: SurvivingAgent) -> None:
    with closing(Played(agent)) as runner:
        runner.send("welcome", at=0.0)
        wait_for(lambda: agent._writer)
        asking, answers = in_background(lambda: agent._relay_call("begin_checkpoint", b"1"))
        reporting, kept = in_background(lambda: agent._relay_call("report_metrics", b"2"))
        sent = {call["method"]: call["id"] for call in (runner.receive("call"), runner.receive("call"))}
    reporting.join(60)
    assert kept == [RETURNED_NOTHING] and not answers  # the report is kept, and the worker trains on
    with closing(Played(agent)) as runner:
        runner.send("welcome", at=0.0)
        again = runner.receive("call")
        assert (again["id"], again["method"]) == (sent["begin_checkpoint"], "begin_checkpoint")
        report = runner.receive("call")
        assert (report["method"], messages.unpack_bytes(report["body"])) == ("report_metrics", b"2")
        for call in (again, report):
            runner.send("answer", id=call["id"], body=messages.pack_bytes(RETURNED_NOTHING))
        asking.join(60)
    assert answers == [RETURNED_NOTHING]


def test_the_error_of_a_kept_report_is_that_of_the_next_call(agent: SurvivingAgent) -> None:
    refusal = b'{"raised":["StaleRun","run 1 has ended"]}'
    agent._relay_call("report_metrics", b"1")
    with closing(Played(agent)) as runner:
        runner.send("welcome", at=0.0)
        runner.send("answer", id=runner.receive("call")["id"], body=messages.pack_bytes(refusal))
        assert agent._relay_call("trial", b"") == refusal


def test_calls_fail_once_the_runner_is_lost(agent: SurvivingAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda code: None)
    waiting, answers = in_background(lambda: agent._relay_call("trial", b""))
    wait_for(lambda: agent._unanswered)
    agent.lose_runner()
    waiting.join(60)
    assert re.match("the runner is gone, so trial cannot be recorded", str(answers[0]))
    with pytest.raises(TrackingError, match="gone"):
        agent._relay_call("report_metrics", b"")


def test_kept_calls_keep_their_order_and_wait_for_room() -> None:
    kept = KeptCalls(max_bytes=10)
    assert kept.add(b"one") and kept.add(b"") and not kept.add(b"three", waits=False)
    assert kept.await_records(5) == kept.await_records(2) == [b"one", b""]
    kept.remove([b"one"])
    assert kept.await_records(5) == [b""]
    kept.remove([b""])
    kept.await_empty()
    assert kept.add(b"x" * 20)
    adding, added = in_background(lambda: bytes(kept.add(b"more")))
    kept.close()
    adding.join(60)
    assert (added, kept.await_records(1), kept.add(b"late")) == ([b""], [], False)
