"""Local launcher, whose only node is this machine and whose agent runs in the process of the runner."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from det_core.config import Block, Positive
from det_core.home import private_directory
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch.gpu_slots import count_gpus, gpu_variables, local_slot_names
from det_core.launch.machine_slots import list_slots, reserve_launch_slots
from det_core.launch.node_agent import AllocatedNode, NodeAgent
from det_core.launch.queued_launch import QueuedLaunch
from det_core.launch.worker_environment import find_backend, make_lasting_environment, thread_limit_variables


class LocalConfig(Block):
    """Options of the local launcher."""

    # Other processes read no more than 64 KiB of the names of the slots that a trial may use and holds.
    slots: Positive = Field(default=1, le=1024, examples=[4], json_schema_extra={"unit": "slots"})
    """Number of workers that this machine can run if it has no GPU."""
    prepare: tuple[str, ...] | Literal[False] = Field(default=(), examples=[["sklearn", "torchvision"]])
    """Modules that workers of trial classes need not import, beside those of det, of the framework and of the backend.
    A process imports them once and is copied for each worker. They must not start threads, open files or use a GPU
    when they are imported. With ``false``, each worker starts as a new process."""


class LocalLauncher(Launcher):
    """Launcher that starts workers as children of the calling process."""

    def __init__(self, config: LocalConfig) -> None:
        can_fork = sys.platform == "linux"  # system libraries of macOS fail after a fork
        self._prepare = config.prepare if can_fork and config.prepare is not False else None
        self._has_gpus = count_gpus() > 0
        self._names = local_slot_names(config.slots)
        self.slots: int = len(self._names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if self._has_gpus else "cpu"

    def prepare(self, entrypoint: str, code: Path, env: Mapping[str, str], backend: str | None) -> None:
        """Start the process from which workers are forked before the first of them is launched.

        Nothing is started if all slots are in use, because the process would take memory as long as the launch waits.

        Args:
            entrypoint: the trial class as MODULE:CLASS.
            code: directory with the user's code, which is read, but not run.
            env: variables that the launches add to the environment, as in `LaunchRequest`.
            backend: name of the backend that starts the workers, or None if there is only one worker.
        """
        if self._prepare is None or all(slot.in_use for slot in list_slots(self._names)[0]):
            return
        from det_core.launch._prepared_command import find_prepared_process, find_worker_modules

        modules = [*find_worker_modules(entrypoint, code, backend), *self._prepare]
        with suppress(OSError):  # the launch will say why
            find_prepared_process(modules, make_lasting_environment({**self._variables(self._names, backend), **env}))

    def available_slots(self, request: LaunchRequest) -> int:
        return reserve_launch_slots(replace(request, slots=1), self._present()).count_available()

    def start(self, request: LaunchRequest) -> Allocation:
        request = replace(request, secrets={})  # these workers read the user's own files
        names = self._present()

        def start_agent(slots: Sequence[int], descriptors: Sequence[int]) -> Allocation:
            chosen = [names[slot] for slot in slots]
            return NodeAgent(
                request,
                AllocatedNode(name="local", slot_ids=[self._names.index(name) for name in chosen]),
                env=self._variables(chosen, find_backend(request.argv)),
                inherit=descriptors,
                parent=private_directory("runs"),
                prepare=self._prepare,
            )

        hint = "" if self._has_gpus else ", or add --config launcher.slots={slots}"
        return QueuedLaunch(request, names, start_agent, hint=hint)

    def _present(self) -> Sequence[str]:
        """Return the names of the slots without GPUs that have vanished."""
        present = set(local_slot_names(self.slots)) if self._has_gpus else self._names
        return [name for name in self._names if name in present]

    def _variables(self, names: Sequence[str], backend: str | None) -> dict[str, str]:
        """Return the variables of the workers of a launch that has slots of these names.

        Workers of a backend have a limit in any case. It is set here, so that a prepared process reads it, too.
        """
        gpus = gpu_variables(names) if self._has_gpus else {}
        return {**gpus, **(thread_limit_variables(self.slots) if self.slots > 1 or backend else {})}
