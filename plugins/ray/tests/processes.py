"""Processes of launches on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

_LEFT = ("agent_program", "python3 main.py", "_guard.py", "det_ray.driver")


def find_drivers() -> list[psutil.Process]:
    """Return the drivers of launches of this process."""
    return [one for one in psutil.Process().children(recursive=True) if "det_ray.driver" in command_line(one)]


def left_behind() -> list[str]:
    """Return the command lines of processes of launches that are left in the network of these tests."""
    lines = [command_line(one) for one in psutil.process_iter() if network_of(one.pid) == network_of(os.getpid())]
    return [line for line in lines if any(part in line for part in _LEFT)]


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
