"""Launch of a trial in one placement group."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from det_cluster.agent_group import AgentGroup
from det_cluster.mounted_storage import mark_mounted_storage

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase, Status
from det_ray._reports import Report, parse_report


class RayGroup(AgentGroup):
    """Launch whose nodes are the bundles of a placement group. A driver in a process of its own creates it.

    Args:
        request: the launch request.
        address: address of the cluster.
        nodes: number of nodes.
        bundle: resources of each node.
    """

    def __init__(self, request: LaunchRequest, *, address: str, nodes: int, bundle: Mapping[str, float]) -> None:
        self._report = Report(message="connecting to Ray")
        self._end: Exit | None = None
        options = [f"--nodes={nodes}", f"--resources={json.dumps(dict(bundle))}"]
        with ExitStack() as undo:
            if seen := undo.enter_context(mark_mounted_storage(request)):
                options.append(f"--seen={seen}")
            self._undo = undo.pop_all()
        command = [sys.executable, "-m", "det_ray.driver", "run", address, request.key, *options]
        super().__init__(request, [command], nodes=nodes, start_seconds=math.inf)

    def receive_line(self, text: str) -> None:
        if report := parse_report(text):
            self._report = report
        else:
            super().receive_line(text)

    def status(self) -> Status:
        handle = f"Ray job {self._report.job}" if self._report.job else ""
        if self._report.placed:
            return replace(super().status(), handle=handle)
        return Status(phase=Phase.QUEUED, handle=handle, message=self._report.message)

    def wait(self, timeout: float) -> Exit | None:
        if self._end is None and (end := super().wait(timeout)):
            if self._report.refused:
                raise LaunchError(self._report.message)
            self._end = self._explain(end)
        return self._end

    def close(self) -> None:
        with self._undo:
            super().close()

    def _explain(self, end: Exit) -> Exit:
        """Return the end with the cause that the driver has reported, if it ended the launch."""
        is_engine = end.cause in (Cause.NODE_LOST, Cause.NOT_STARTED)
        if not (is_engine and self._report.cause):
            return end
        cause = Cause(self._report.cause)
        return replace(end, cause=end.cause if cause is Cause.NODE_LOST else cause, message=self._report.message)
