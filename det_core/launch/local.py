"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from det_core.config import Block, Positive
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch._worker_environment.thread_limits import thread_limit_variables
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.launch.queued_launch import QueuedLaunch


class LocalConfig(Block):
    """Options of the local launcher."""

    slots: Positive = Field(default=1, examples=[4], json_schema_extra={"unit": "slots"})
    """Number of workers that this machine can run if it has no GPU."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._names = local_slot_names(config.slots)
        self.slots: int = len(self._names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if count_gpus() else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        request = replace(request, secrets={})  # these workers read the user's own files
        threads = thread_limit_variables(self.slots) if self.slots > 1 else {}

        def start_agent(slots: Sequence[int], descriptors: Sequence[int]) -> Allocation:
            return NodeAgent(
                request,
                AllocatedNode(name="local", slot_ids=slots),
                env={**gpu_variables(slots), **threads},
                inherit=descriptors,
                parent=private_directory("runs"),
            )

        hint = "" if count_gpus() else ", or set launcher: {type: local, slots: N}"
        return QueuedLaunch(request, self._names, start_agent, hint=hint)
