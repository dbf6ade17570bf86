"""Launcher with a queue, for the slots of this machine, which all runners share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup

from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_core.launch.gpu_slots import count_gpus, local_slot_names
from det_core.launch.queued_launch import QueuedLaunch


class QueueLauncher(Launcher):
    """Launcher whose trials wait for slots of this machine."""

    def __init__(self, config: object) -> None:
        self.names = local_slot_names(2)  # one for each GPU, or two of a machine without GPUs
        self.slots = len(self.names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if count_gpus() else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        def start_agent(slots: Sequence[int], descriptors: Sequence[int]) -> Allocation:
            return AgentGroup(request, [["nice", *AGENT_COMMAND]], slot_ids=[slots], inherit=descriptors)

        return QueuedLaunch(request, self.names, start_agent)
