"""Liveness of processes, and the holders of file locks.

They are read from ``/proc``, because workers and scripts import this module and psutil takes 16 ms.
"""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def process_has_ended(pid: int, start: str = "") -> bool:
    """Return whether a process is certainly gone.

    A zombie counts as gone, and a process that cannot be inspected counts as alive.

    Args:
        pid: id of the process.
        start: its `process_start_time`, which distinguishes it from a later process with the same id, or "" if unknown.
    """
    if seen := _inspect_process(pid):
        is_zombie, started = seen
        return is_zombie or start not in ("", started)
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)  # a process of another user cannot be signaled
    return False


def process_start_time(pid: int) -> str:
    """Return the start of a process since boot, in 0.01 s, or "" if it is gone or cannot be inspected."""
    seen = _inspect_process(pid)
    return seen[1] if seen else ""


def count_memory_kills() -> int:
    """Return how many processes in the control group of this one the kernel has killed for lack of memory.

    Those of the whole host where control groups (version 2) do not count memory. 0 where the kernel does not tell.
    """
    for path in (*_memory_event_files(), _PROC / "vmstat"):
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def pid_namespace_name() -> str:
    """Return a name for this container, or for this host since its boot, within which process ids are valid.

    Several hosts and containers may share a host name. If Linux offers nothing more specific, the name is unique.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    mark = hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]
    return f"{socket.gethostname()}-{mark}"


def kill_lock_holders(path: Path) -> None:
    """Kill the other processes of this user that hold a lock on the file, and all their descendants."""
    import psutil

    for pid in sorted(_lock_holders(path)):
        with suppress(psutil.Error):  # ended meanwhile
            holder = psutil.Process(pid)
            for one in (holder, *holder.children(recursive=True)):  # a parent first, as it may start others
                one.kill()


def _memory_event_files() -> list[Path]:
    """Return the files that may have the counter of the control group, which belongs to the nearest one with memory."""
    with suppress(OSError):
        for line in (_PROC / "self/cgroup").read_text(encoding="utf-8").splitlines():
            hierarchy, _, place = line.split(":", 2)
            if hierarchy == "0":
                group = Path(place.lstrip("/"))
                return [_CONTROL_GROUPS / one / "memory.events" for one in (group, *group.parents)]
    return []


def _lock_holders(path: Path) -> set[int]:
    """Return the ids of the processes, or none if there is no ``/proc``."""
    file, found = path.stat(), set()
    for descriptor in _PROC.glob("[0-9]*/fd/[0-9]*"):
        process = descriptor.parent.parent
        with suppress(OSError):  # ended meanwhile, or another user's
            is_open = process.stat().st_uid == os.getuid() and os.path.samestat(descriptor.stat(), file)
            if is_open and "FLOCK" in (process / "fdinfo" / descriptor.name).read_text(encoding="utf-8"):
                found.add(int(process.name))
    return found - {os.getpid()}


def _inspect_process(pid: int) -> tuple[bool, str] | None:
    """Return whether a process is a zombie and when it started, or None if it is gone or cannot be inspected."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    values = text.rpartition(")")[2].split()  # after the name, which may contain anything; see proc(5)
    return values[0] == "Z", values[19]
