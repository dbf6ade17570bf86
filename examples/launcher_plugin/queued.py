"""Launcher with a queue, for the slots of this machine, which all runners share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch.agent_group import AGENT_COMMAND, AgentGroup
from det_core.launch.gpu_slots import count_gpus, local_slot_names
from det_core.launch.machine_slots import reserve_launch_slots


class QueueLauncher(Launcher):
    """Launcher whose trials wait for slots of this machine."""

    def __init__(self, config: object) -> None:
        self.names = local_slot_names(2)  # one for each GPU, or two of a machine without GPUs
        self.slots = len(self.names)

    def device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if count_gpus() else "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        return QueuedAllocation(request, self.names)


class QueuedAllocation(Allocation):
    """Launch that waits for its slots, and is an `AgentGroup` afterwards."""

    def __init__(self, request: LaunchRequest, names: Sequence[str]) -> None:
        self.request = request
        self.group: AgentGroup | None = None
        self.withdrawn: Exit | None = None
        self.place = reserve_launch_slots(request, names)
        self.place.poll()

    def wait(self, timeout: float) -> Exit | None:
        if self.group is None and self.withdrawn is None:
            slots = self.place.poll()
            if slots is None:
                time.sleep(timeout)
                return None
            command = ["nice", *AGENT_COMMAND]
            self.group = AgentGroup(self.request, [command], slot_ids=[slots], inherit=self.place.descriptors)
        return self.group.wait(timeout) if self.group else self.withdrawn

    def status(self) -> Status:
        if self.group:
            return self.group.status()
        return Status(phase=Phase.QUEUED, message=self.place.explain_wait())

    def preempt(self) -> None:
        if self.group:
            self.group.preempt()
        else:
            self.withdrawn = Exit(code=1, cause=Cause.NOT_STARTED, message="it was withdrawn from the queue")

    def kill(self) -> None:
        if self.group:
            self.group.kill()
        else:
            self.preempt()

    def close(self) -> None:
        if self.group:
            self.group.close()
        self.place.close()
