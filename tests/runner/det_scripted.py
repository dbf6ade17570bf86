"""Launcher that runs real processes on this machine, and reports what a script says about them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import det_core
from det_core.config import Block
from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.specs import LauncherSpec

REFUSALS = {"LaunchError": LaunchError, "LaunchDelayed": LaunchDelayed}
"""Errors that `Launcher.start` raises, by name."""


class ScriptedConfig(Block):
    script: Sequence[str] = ()
    """What happens to each launch of a trial: a `Cause`, an error of `REFUSALS`, or "" if nothing happens."""
    gates: str = ""
    """Directory with the files ``started`` and ``running``, for which launches wait. Empty if they do not wait."""


launches: Counter[str] = Counter()
"""Number of launches of each trial."""


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    yield LauncherSpec(
        name="scripted", target="det_scripted:ScriptedLauncher", config_model="det_scripted:ScriptedConfig"
    )


class ScriptedLauncher(Launcher):
    def __init__(self, config: ScriptedConfig) -> None:
        self._config = config
        self._lock = threading.Lock()

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        with self._lock:
            number = launches[request.key]
            launches[request.key] += 1
        step = self._config.script[number] if number < len(self._config.script) else ""
        if step in REFUSALS:
            raise REFUSALS[step](f"the engine says {step}")
        return ScriptedAllocation(request, step, self._config.gates)


class ScriptedAllocation(Allocation):
    def __init__(self, request: LaunchRequest, step: str, gates: str) -> None:
        self._request, self._gates = request, gates
        self._cause = Cause[step] if step else Cause.WORKERS
        self._agent: NodeAgent | None = None
        self._end = self._exit_with(1) if self._cause is Cause.NOT_STARTED else None

    def wait(self, timeout: float) -> Exit | None:
        if not self._end and not self._agent and self._phase() is Phase.RUNNING:
            self._agent = NodeAgent(self._request, AllocatedNode(name="n1", slot_ids=[0]))
        if not self._end and self._agent and (end := self._agent.wait(timeout)):
            self._end = self._exit_with(end.code)
        if not self._end and not self._agent:
            time.sleep(0.01)
        return self._end

    def status(self) -> Status:
        phase = self._phase()
        nodes = () if phase is Phase.QUEUED else ("n1", "n2")
        return Status(phase=phase, nodes=nodes, handle="Job 7", message="Priority" if phase is Phase.QUEUED else "")

    def preempt(self) -> None:
        if self._agent:
            self._agent.preempt()
        else:
            self._end = Exit(code=1, cause=Cause.NOT_STARTED, message="it was withdrawn")

    def kill(self) -> None:
        self.preempt()
        if self._agent:
            self._agent.kill()

    def close(self) -> None:
        if self._agent:
            self._agent.close()

    def _exit_with(self, code: int) -> Exit:
        return Exit(code=code, cause=self._cause, message="says the engine")

    def _phase(self) -> Phase:
        if self._cause is Cause.NOT_STARTED:
            return Phase.QUEUED
        open_gates = [name for name in ("started", "running") if not self._gates or Path(self._gates, name).exists()]
        return list(Phase)[len(open_gates)]
