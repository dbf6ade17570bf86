"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from det_core.config import Block, Positive
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.launch.queued_launch import QueuedLaunch
from det_core.launch.worker_environment import thread_limit_variables


class LocalConfig(Block):
    """Options of the local launcher."""

    # Other processes read no more than 64 KiB of the names of the slots that a trial may use and holds.
    slots: Positive = Field(default=1, le=1024, examples=[4], json_schema_extra={"unit": "slots"})
    """Number of workers that this machine can run if it has no GPU."""
    prepare: tuple[str, ...] | Literal[False] = Field(default=(), examples=[["sklearn", "torchvision"]])
    """Modules that workers of trial classes with one slot need not import, beside those of det and of the framework.
    A process imports them once and is copied for each worker. They must not start threads, open files or use a GPU
    when they are imported. With ``false``, each worker starts as a new process."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        self._prepare = None if config.prepare is False else config.prepare
        self._has_gpus = count_gpus() > 0
        self._names = local_slot_names(config.slots)
        self.slots: int = len(self._names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if self._has_gpus else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        request = replace(request, secrets={})  # these workers read the user's own files
        threads = thread_limit_variables(self.slots) if self.slots > 1 else {}
        present = set(local_slot_names(self.slots)) if self._has_gpus else self._names  # a GPU may have vanished
        names = [name for name in self._names if name in present]

        def start_agent(slots: Sequence[int], descriptors: Sequence[int]) -> Allocation:
            chosen = [names[slot] for slot in slots]
            return NodeAgent(
                request,
                AllocatedNode(name="local", slot_ids=[self._names.index(name) for name in chosen]),
                env={**(gpu_variables(chosen) if self._has_gpus else {}), **threads},
                inherit=descriptors,
                parent=private_directory("runs"),
                prepare=self._prepare,
            )

        hint = "" if self._has_gpus else ", or add --config launcher.slots={slots}"
        return QueuedLaunch(request, names, start_agent, hint=hint)
