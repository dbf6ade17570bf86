"""Processes of launches on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from cluster import wait_for

_REAPER = "_reaper.py"
_PARTS = {
    "worker": ("python3 main.py", 0),
    "inner reaper": (_REAPER, 0),
    "outer reaper": (_REAPER, 1),
    "agent": ("agent_program", 0),
    "actor": ("ray::NodeActor", 0),
}
"""Parts of the command lines of a worker and of processes above it, and how many such processes are below them."""
_LEFT = ("agent_program", "python3 main.py", "det_ray.driver")


def find_part(worker: psutil.Process, role: str) -> psutil.Process:
    """Return a process of the launch of a worker."""
    text, index = _PARTS[role]
    lines = [(one, command_line(one)) for one in (worker, *worker.parents())]
    return [one for one, line in lines if text in line and (_REAPER in line) == (text == _REAPER)][index]


def find_drivers() -> list[psutil.Process]:
    """Return the drivers of launches of this process."""
    return [one for one in psutil.Process().children(recursive=True) if "det_ray.driver" in command_line(one)]


def left_behind() -> list[str]:
    """Return the command lines of processes of launches that are left in the network of these tests."""
    lines = [command_line(one) for one in psutil.process_iter() if network_of(one.pid) == network_of(os.getpid())]
    return [line for line in lines if any(part in line for part in _LEFT)]


def wait_for_death(process: psutil.Process, seconds: float = 60.0) -> None:
    """Wait for the end of a process."""
    wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "end of a process", seconds)


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process, or "" if it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def network_of(pid: int) -> str:
    """Return the network namespace of a process, or "" if it is gone."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""
