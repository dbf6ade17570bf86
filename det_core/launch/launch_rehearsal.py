"""Rehearsal of a launch, for ``det doctor``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from det_core.errors import LaunchError
from det_core.interfaces.launcher import PYTHON, Exit, Launcher, LaunchRequest, Phase
from det_core.launch._checked_launcher import CheckedLauncher
from det_core.launch.context_archive import EMPTY_CONTEXT
from det_core.version import __version__

_SECONDS = 120.0
"""Time limit of the launch, including its time in a queue."""
_TICK = 0.2


def rehearse_launch(launcher: Launcher, slots: int, config: Mapping[str, Any]) -> str:
    """Start a launch whose nodes connect to each other, and return one line about the nodes.

    Args:
        launcher: the launcher.
        slots: number of slots of the trial.
        config: the config of the experiment, complete and JSON-compatible.

    Raises:
        LaunchError: the launch failed, or took too long.
    """
    key = f"rehearsal-{uuid.uuid4().hex}"
    tried, slots = CheckedLauncher(launcher, key).rehearsal(slots)
    said: dict[str, list[str]] = {"stdout": [], "stderr": [], "det": []}
    request = LaunchRequest(
        key=f"{key}-trial-0",
        argv=[PYTHON, "-m", "det_core.launch._launch_rehearsal_node"],
        code=EMPTY_CONTEXT,
        info=_make_info(config),
        slots=slots,
        log=lambda rank, stream, text: said[stream].append(text),
        call=_refuse_call,
    )
    with closing(tried), closing(tried.start(request)) as allocation:
        deadline = time.monotonic() + _SECONDS
        nodes: list[str] = []
        while (end := allocation.wait(_TICK)) is None:
            status = allocation.status()
            nodes = list(status.nodes) or nodes
            if time.monotonic() > deadline:
                allocation.kill()
                waits = "it still waits" if status.phase is Phase.QUEUED else f"it is still {status.phase.value}"
                details = "; ".join(filter(None, (status.handle, status.message)))
                raise LaunchError(f"a launch has not ended after {_SECONDS:.0f} s, {waits} ({details})")
    if end != Exit(code=0):
        reasons = [*filter(None, (end.message,)), *said["stderr"][-3:], *said["det"][-3:]]
        raise LaunchError(f"a launch on {', '.join(nodes) or 'no node'} failed: {'; '.join(reasons) or end}")
    described = "; ".join(sorted(said["stdout"]))
    if all(f"det-core {__version__}," in line for line in said["stdout"]):
        return described
    return f"{described}; det-core {__version__} is here, install the same release on all nodes or in their image"


def _make_info(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the content of `LaunchRequest.info` of a trial that does not exist."""
    trial = {"trial_id": 0, "experiment_id": 0, "trial_seed": 0, "hparams": {}, "steps_completed": 0, "trial_run_id": 0}
    cluster = dict.fromkeys(("master_url", "cluster_id", "agent_id", "session_token"), "")
    task = {"task_id": "rehearsal", "task_type": "TRIAL", "allocation_id": "rehearsal", "latest_checkpoint": None}
    return {"cluster.json": {**cluster, **task}, "trial.json": {**trial, "config": dict(config)}}


def _refuse_call(method: str, body: bytes) -> bytes:
    raise LaunchError(f"unexpected call of {method} in a rehearsal")
