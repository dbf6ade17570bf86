"""Complete launcher plugin in one file, which starts trials behind a command such as ``ssh HOST``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from pydantic import BaseModel, ConfigDict, Field

import det_core
from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.specs import LauncherSpec


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    yield LauncherSpec(name="prefix", target="det_prefix:PrefixLauncher", config_model="det_prefix:PrefixConfig")


class PrefixConfig(BaseModel):
    """Options in the block ``launcher``."""

    model_config = ConfigDict(extra="forbid")

    command: tuple[str, ...]
    """Command that starts another one, which follows its words, such as ``[ssh, gpu1]``."""
    slots: int = Field(default=1, ge=1)
    """Number of workers that the machine can run at once, which is the number of its GPUs if it has any."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the slots."""


class PrefixLauncher(Launcher):
    """Launcher for a machine that a command leads to."""

    def __init__(self, config: PrefixConfig) -> None:
        self.config = config
        self.slots = config.slots  # the runner starts no more trials at once than that
        self.free = set(range(config.slots))
        self.lock = threading.Lock()

    def device(self) -> Literal["cpu", "cuda"]:
        return self.config.device

    def start(self, request: LaunchRequest) -> Allocation:
        if request.slots > self.config.slots:
            raise LaunchError(
                f"the trial needs {request.slots} slots, but launcher.slots is {self.config.slots}; "
                "lower resources.slots_per_trial"
            )
        with self.lock:
            if request.slots > len(self.free):
                raise LaunchDelayed(f"the trial needs {request.slots} slots, but {len(self.free)} are free")
            slots = [self.free.pop() for _ in range(request.slots)]
        return PrefixAllocation(request, slots, self)


class PrefixAllocation(AgentGroup):
    """Launch behind the command. All is done by the node agent that the command starts."""

    def __init__(self, request: LaunchRequest, slots: list[int], launcher: PrefixLauncher) -> None:
        self.slots, self.launcher = slots, launcher
        super().__init__(request, [[*launcher.config.command, *AGENT_COMMAND]], slot_ids=[slots])

    def close(self) -> None:
        """Release the slots, also those of a launch that could not be started."""
        super().close()
        self.launcher.free.update(self.slots)
