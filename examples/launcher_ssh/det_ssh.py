"""Launcher plugin in one file, which runs trials on hosts behind ``ssh``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from det_cluster.agent_group import AgentGroup
from pydantic import BaseModel, ConfigDict, Field

import det_core
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch.queued_launch import QueuedLaunch
from det_core.specs import LauncherSpec

SSH = (
    "ssh",
    "-T",
    "-oBatchMode=yes",  # an unknown host key or a missing key is an error, not a question
    "-oConnectTimeout=15",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=5",
    "-oControlPath=none",  # each launch has a connection of its own
)


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    yield LauncherSpec(name="ssh", target="det_ssh:SshLauncher", config_model="det_ssh:SshConfig")


class SshConfig(BaseModel):
    """Options in the block ``launcher``."""

    model_config = ConfigDict(extra="forbid")

    hosts: dict[Annotated[str, Field(pattern=r"^\w[\w.@-]*$")], Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Number of workers that each host can run at once. ssh knows the hosts by these names."""
    options: tuple[str, ...] = ()
    """Further options of ssh, one word each, such as ``-Fcluster.conf``. They take precedence over those of det."""
    python: str = "python3"
    """Python interpreter of the hosts, with the same release of det-core and this plugin."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the slots."""


class SshLauncher(Launcher):
    """Launcher whose trials wait for slots of the hosts, in one queue with those of all runners of this machine."""

    def __init__(self, config: SshConfig) -> None:
        self.config = config
        self.places = [(host, slot) for host, count in config.hosts.items() for slot in range(count)]
        self.slots = len(self.places)

    def device(self) -> Literal["cpu", "cuda"]:
        return self.config.device

    def start(self, request: LaunchRequest) -> Allocation:
        def connect(chosen: Sequence[int], descriptors: Sequence[int]) -> Allocation:
            slots: dict[str, list[int]] = {}
            for host, slot in (self.places[position] for position in chosen):
                slots.setdefault(host, []).append(slot)
            commands = [self.command(node, host) for node, host in enumerate(slots)]
            return AgentGroup(request, commands, slot_ids=list(slots.values()), inherit=descriptors)

        return QueuedLaunch(request, [f"ssh-{host}-{slot}" for host, slot in self.places], connect)

    def command(self, node: int, host: str) -> list[str]:
        """Return the command that connects this process with the node agent of a host."""
        agent = [self.config.python, "-m", "det_cluster.agent_program", "--node", str(node), "--name", host]
        return [SSH[0], *self.config.options, *SSH[1:], host, *agent]
