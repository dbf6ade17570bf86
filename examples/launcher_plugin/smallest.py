"""The smallest launcher, for one trial at a time with a low priority."""

from __future__ import annotations

from typing import Literal

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup

from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest


class NiceLauncher(Launcher):
    """Launcher that starts the node agent with a low priority."""

    slots = 1

    def __init__(self, config: object) -> None:
        """Ignore the config, because there are no options."""

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return AgentGroup(request, [["nice", "-n", "10", *AGENT_COMMAND]])
