"""Job of Ray for one launch, which is one placement group."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace

from det_cluster.agent_group import AgentGroup
from det_cluster.engine_launch import EngineJob

from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase, Status
from det_ray._reports import Report, parse_report


class RayJob(EngineJob):
    """Placement group whose bundles are the nodes of a launch. A driver in a process of its own creates it.

    Args:
        address: address of the cluster.
        nodes: number of nodes.
        bundle: resources of each node.
    """

    def __init__(self, address: str, nodes: int, bundle: Mapping[str, float]) -> None:
        self._address, self._nodes, self._bundle = address, nodes, dict(bundle)
        self._report = Report(message="connecting to Ray")

    def advance(self, request: LaunchRequest) -> AgentGroup:
        options = [f"--nodes={self._nodes}", f"--resources={json.dumps(self._bundle)}"]
        command = [sys.executable, "-m", "det_ray.driver", "run", self._address, request.key, *options]
        return AgentGroup(request, [command], nodes=self._nodes, start_seconds=math.inf, take_line=self._take_line)

    def status(self) -> Status:
        handle = f"Ray job {self._report.job}" if self._report.job else ""
        if self._report.placed:
            return Status(phase=Phase.STARTING, handle=handle)
        return Status(phase=Phase.QUEUED, handle=handle, message=self._report.message)

    def explain_end(self, end: Exit) -> Exit:
        """Return the end with the cause that the driver has reported, if it ended the launch."""
        is_engine = end.cause in (Cause.NODE_LOST, Cause.NOT_STARTED)
        if not (is_engine and self._report.cause):
            return end
        cause = Cause(self._report.cause)
        return replace(end, cause=end.cause if cause is Cause.NODE_LOST else cause, message=self._report.message)

    def close(self) -> None:
        """Do nothing, because the group ends with its driver, the command of the agents."""

    def _take_line(self, text: str) -> bool:
        report = parse_report(text)
        self._report = report or self._report
        return report is not None
