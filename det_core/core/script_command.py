"""Command lines of scripts that run by themselves, as their experiments record them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_core.core._python_session import is_interactive
from det_core.interfaces.records import ExperimentRecord

RESUME = "DET_RESUME"
"""Environment variable with the id of the experiment that the next `core.init` of a script continues."""
STARTED_BY = "DET_STARTED_BY"
"""Environment variable of workers with the command of ``python -m det_core.launch`` as a JSON list."""


def describe_start(workers: int) -> dict[str, Any]:
    """Return the config keys that record how this script was started.

    Args:
        workers: number of workers of the script. Several ones have a launcher, whose command is recorded.
    """
    try:
        directory: str | None = str(Path.cwd())
    except FileNotFoundError:  # it was removed
        directory = None
    return {"entrypoint": _started_with(workers), "internal": {"directory": directory}}


def resume_command(experiment_id: int, config: Mapping[str, Any]) -> str:
    """Return what to type to continue the experiment of a script from its latest checkpoint.

    Args:
        experiment_id: id of the experiment.
        config: its config.
    """
    command, internal = config.get("entrypoint"), config.get("internal")
    directory = internal.get("directory") if isinstance(internal, Mapping) else None
    if not isinstance(command, list) or not any(command):
        return f"core.init(resume={experiment_id})"
    with suppress(FileNotFoundError):
        directory = None if directory == str(Path.cwd()) else directory
    there = f"cd {shlex.quote(directory)} && " if directory else ""
    return f"{there}{RESUME}={experiment_id} {shlex.join(command)}"


def explain_script(experiment: ExperimentRecord) -> str:
    """Return the error of commands that only runners can carry out."""
    command = resume_command(experiment.id, experiment.config)
    return f"experiment {experiment.id} was recorded by a script, which continues with: {command}"


def _started_with(workers: int) -> list[str]:
    if is_interactive():
        return [""]
    if launcher := os.environ.get(STARTED_BY):
        return list(json.loads(launcher))
    if workers > 1:
        with suppress(OSError):  # without /proc
            parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
            return [os.fsdecode(word) for word in parent.split(b"\0")[:-1]]
    return sys.orig_argv
