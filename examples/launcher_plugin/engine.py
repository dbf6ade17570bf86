"""Launcher for an engine that has a command line tool (docs/launchers.md)."""

from __future__ import annotations

import subprocess

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from det_cluster.engine_launch import EngineJob, EngineLaunch

from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status


class EngineLauncher(Launcher):
    """Launcher for an engine with the command line tool ``engine``."""

    def device(self):
        return "cpu"

    def open(self, key: str) -> None:
        call_engine("remove", "--name-prefix", f"{key}-")

    def start(self, request: LaunchRequest) -> Allocation:
        return EngineLaunch(request, OneNode(request.key))


class OneNode(EngineJob):
    """Job with one node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "unknown"

    def advance(self, request: LaunchRequest) -> AgentGroup | None:
        if self.state == "unknown":
            call_engine("submit", "--name", self.name)
        self.state = call_engine("state", self.name)
        if self.state != "running":
            return None
        return AgentGroup(request, [["engine", "attach", self.name, *AGENT_COMMAND]])

    def status(self) -> Status:
        waits = self.state != "running"
        message = f"it is {self.state}" if waits else ""
        return Status(phase=Phase.QUEUED if waits else Phase.STARTING, handle=f"job {self.name}", message=message)

    def explain_end(self, end: Exit) -> Exit:
        was_preempted = call_engine("state", self.name) == "preempted"
        return Exit(code=1, cause=Cause.PREEMPTED, message=f"job {self.name}") if was_preempted else end

    def close(self) -> None:
        call_engine("remove", "--name", self.name)


def call_engine(*words: str) -> str:
    ran = subprocess.run(["engine", *words], capture_output=True, text=True, timeout=20, check=True)
    return ran.stdout.strip()
