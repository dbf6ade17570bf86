"""Process that withdraws the jobs of a runner that was killed, ``python _srun_withdrawer.py``.

An ``srun`` whose job waits does not notice the end of its stdin, and one that is killed leaves its job behind. This
process therefore outlives the runner. It reads lines with the orders `ADD`, `STARTED` and `REMOVE` from its stdin. When
they end, it sends SIGTERM to each ``srun`` that is left. Those whose agents have started get 10 s, in which their
workers save checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

GRACE = 10.0
"""Seconds from the end of the runner until ``srun`` processes with agents are ended."""
ADD, STARTED, REMOVE = "add", "started", "remove"
_END_SECONDS = 5.0
_TICK = 0.1


class SrunWithdrawer:
    """Process that outlives this one to end its ``srun`` processes. It runs while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def add_process(self, pid: int) -> None:
        """Add an ``srun`` whose job may wait."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                    start_new_session=True,
                )
            self._pids.add(pid)
            self._tell(ADD, pid)

    def mark_started(self, pid: int) -> None:
        """Note that the agents of an ``srun`` have started."""
        with self._lock:
            if pid in self._pids:
                self._tell(STARTED, pid)

    def remove_process(self, pid: int) -> None:
        """Note that an ``srun`` has ended."""
        with self._lock:
            if pid not in self._pids:
                return
            self._pids.remove(pid)
            self._tell(REMOVE, pid)
            if not self._pids and (process := self._process):
                self._process = None
                assert process.stdin
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:  # a forked process has kept the pipe open
                    process.kill()
                    process.wait()

    def _tell(self, order: str, pid: int) -> None:
        assert self._process and self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # the process was killed
            self._process.stdin.write(f"{order} {pid}\n")
            self._process.stdin.flush()


def main(lines: Iterable[str]) -> None:
    """Follow the orders, and end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    waiting: dict[int, str] = {}
    running: dict[int, str] = {}
    for line in lines:
        order, word = line.split()
        pid = int(word)
        if order == ADD:
            waiting[pid] = _start_time(pid)
        elif order == STARTED:
            running[pid] = waiting.pop(pid, "")
        else:
            waiting.pop(pid, None)
            running.pop(pid, None)
    _terminate(waiting)
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline and any(_start_time(pid) == begin for pid, begin in running.items()):
        time.sleep(_TICK)
    _terminate(running)


def _terminate(processes: dict[int, str]) -> None:
    for pid, begin in processes.items():
        if begin and _start_time(pid) == begin:  # else it has ended, and another process may have its number
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)


def _start_time(pid: int) -> str:
    """Return the start of a process since boot, or "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace", encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.stdin)
