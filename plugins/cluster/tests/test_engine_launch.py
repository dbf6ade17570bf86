"""Launches whose nodes an engine provides. The test plays the engine and the agent of the node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from det_cluster import _agent_command, agent_group
from det_cluster.agent_group import AgentGroup
from det_cluster.engine_launch import EngineJob, EngineLaunch
from det_testing.launcher.watched_launch import refuse_calls

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import WITHDRAWN, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from tests.waiting import wait_for

from .fake_agent import FakeAgent

QUEUED = Status(phase=Phase.QUEUED, handle="job 7", message="two nodes are busy")
PLACED = Status(phase=Phase.STARTING, handle="job 7")
PREEMPTED = Exit(code=1, cause=Cause.PREEMPTED, message="job 7, by job 8")


@dataclass
class Job(EngineJob):
    """Job whose steps and explanation a test gives."""

    agent: FakeAgent
    steps: list[Callable[[LaunchRequest], AgentGroup | None]]
    explain: Callable[[Exit], Exit] = lambda end: end
    state: Status = QUEUED
    ended: Mapping[int, Exit] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    poll_seconds = 0.0

    def advance(self, request: LaunchRequest) -> AgentGroup | None:
        self.calls.append("advance")
        return self.steps.pop(0)(request)

    def become_agents(self, request: LaunchRequest) -> AgentGroup:
        group = AgentGroup(
            request, [self.agent.command], take_line=lambda line: line.startswith("engine:"), **self.options
        )
        self.state = PLACED
        return group

    def status(self) -> Status:
        return self.state

    def explain_end(self, end: Exit) -> Exit:
        self.calls.append("explain")
        return self.explain(end)

    def find_ended_nodes(self) -> Mapping[int, Exit]:
        self.calls.append("find")
        if self.calls.count("find") < 3:
            raise LaunchDelayed("no route to host")
        return self.ended

    def hand_over(self) -> None:
        self.calls.append("hand over")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Return a job that gets its node at the third step."""
    monkeypatch.setattr(agent_group, "_TICK", 0.02)
    monkeypatch.setattr(agent_group, "_KILL_SECONDS", 0.5)
    monkeypatch.setattr(_agent_command, "END_SECONDS", 0.5)
    monkeypatch.setattr(agent_group, "_LOST_SECONDS", 0.0)
    with closing(FakeAgent(tmp_path)) as agent:
        job = Job(agent, [])
        job.steps = [lambda _: None, lambda _: None, job.become_agents]
        yield job


@pytest.fixture
def launch(job: Job, lines: list[str]) -> Iterator[EngineLaunch]:
    def log(rank: int | None, stream: str, text: str) -> None:
        lines.append(text)

    request = LaunchRequest(
        key="k", argv=["a"], code=b"", info={"cluster.json": {}}, slots=1, log=log, call=refuse_calls
    )
    launch = EngineLaunch(request, job)
    yield launch
    if not {"close", "hand over"} & set(job.calls):
        job.agent.hang_up()
        launch.close()


def run(launch: Allocation, job: Job, **hello: Any) -> None:
    """Let the job wait for its node, and the agent start its workers."""
    wait_for(lambda: launch.wait(0.01) or len(job.calls) == 3)
    job.agent.greet(**hello)
    assert launch.wait(0.1) is None
    if hello:
        job.agent.order("welcome")
    job.agent.order("start")
    job.agent.say("started")
    wait_for(lambda: launch.wait(0.01) or launch.status().phase is Phase.RUNNING)


def test_a_launch_waits_for_its_nodes_and_then_is_its_agents(launch: EngineLaunch, job: Job, lines: list[str]) -> None:
    assert launch.status() == QUEUED
    run(launch, job)
    assert launch.status() == Status(phase=Phase.RUNNING, handle="job 7", nodes=["n0"])
    job.agent.replies.write(b"engine: for the job\nfor the log\n")
    job.agent.end(3)
    assert launch.wait(60) == Exit(code=3)
    assert lines == ["for the log"]
    launch.close()
    assert job.calls == ["advance"] * 3 + ["close"]


def test_an_end_by_the_engine_is_explained_without_a_wait(launch: EngineLaunch, job: Job) -> None:
    asked = threading.Event()
    job.explain = lambda end: PREEMPTED if asked.wait(60) else end
    run(launch, job)
    job.agent.hang_up()
    wait_for(lambda: launch.wait(0) or "explain" in job.calls)
    began = time.monotonic()
    assert launch.wait(0.1) is None and time.monotonic() < began + 5
    asked.set()
    assert launch.wait(60) == launch.wait(0) == PREEMPTED
    assert job.calls.count("explain") == 1


def test_a_node_without_a_connection_ends_once_the_engine_proves_it(
    launch: EngineLaunch, job: Job, lines: list[str]
) -> None:
    """What has cut the connection to the node may also keep the engine from answering."""
    job.options = {"reconnect_seconds": 600.0}
    run(launch, job, agent="a", ordered=False, started=False)
    assert "find" not in job.calls
    job.agent.hang_up()
    wait_for(lambda: launch.wait(0.01) or job.calls.count("find") > 3)
    assert lines[1:] == ["the engine does not say which nodes have ended: no route to host"]
    assert launch.status().phase is Phase.RUNNING and "no connection to n0" in launch.status().message
    job.ended = {0: PREEMPTED}
    assert launch.wait(60) == PREEMPTED


@pytest.mark.parametrize("error", [LaunchError("no such image"), LaunchDelayed("the API does not answer")])
def test_errors_of_the_engine_are_those_of_the_launch(launch: EngineLaunch, job: Job, error: LaunchError) -> None:
    def fail(_: Any) -> AgentGroup:
        raise error

    job.steps[1] = fail
    with pytest.raises(type(error), match=str(error)):
        launch.wait(60)
    launch.close()
    assert job.calls == ["advance"] * 2 + ["close"]


@pytest.mark.parametrize("method", ["preempt", "kill"])
def test_a_launch_that_waits_is_withdrawn(launch: EngineLaunch, job: Job, method: str) -> None:
    assert launch.wait(0) is None
    getattr(launch, method)()
    assert launch.wait(0) == WITHDRAWN
    launch.close()
    assert job.calls[-1] == "close"


def test_a_launch_that_is_withdrawn_during_its_last_step_ends_its_agents(launch: EngineLaunch, job: Job) -> None:
    is_withdrawn = threading.Event()

    def start_late(request: LaunchRequest) -> AgentGroup:
        assert is_withdrawn.wait(60)
        return job.become_agents(request)

    job.steps = [start_late]
    assert launch.wait(0.05) is None
    launch.kill()
    is_withdrawn.set()
    launch.close()
    assert launch.wait(0) == WITHDRAWN
    assert job.state is PLACED and job.calls == ["advance", "close"]


def test_a_launch_that_is_handed_over_ends_nothing(launch: EngineLaunch, job: Job) -> None:
    job.options = {"reconnect_seconds": 60.0}
    run(launch, job, agent="one", started=False)
    launch.hand_over()
    launch.close()
    assert job.calls[-1] == "hand over"
    job.agent.say("exit", code=0)
    assert [one for one in job.agent.rest() if one["kind"] != "alive"] == []


def test_a_launch_that_is_adopted_is_preempted_once_its_agent_is_reached(launch: EngineLaunch, job: Job) -> None:
    """If it were withdrawn, its workers would train on, and nobody would get their checkpoint."""
    job.options = {"reconnect_seconds": 60.0, "adopted_as": 1.0}
    job.state = PLACED
    launch.preempt()
    wait_for(lambda: launch.wait(0.01) or launch._group)
    job.agent.greet(agent="one", started=True, request=launch._group and launch._group._launch.fingerprint)
    job.agent.order("welcome")
    job.agent.order("preempt")
    launch.hand_over()


def test_a_launch_that_is_adopted_can_be_killed_before_its_agent_is_reached(launch: EngineLaunch, job: Job) -> None:
    job.state = PLACED
    launch.preempt()
    launch.kill()
    assert launch.wait(0) == WITHDRAWN
