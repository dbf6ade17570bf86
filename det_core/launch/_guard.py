"""Guard process that runs a command and leaves no process of it behind, ``python _guard.py CHANNEL ARGUMENT...``.

The agent starts this file as a script between itself and the command, so it only imports the standard library. Workers
that a prepared process forks have the same guards (`_fork_server`).
Launchers such as torchrun put their workers into sessions of their own, where signals to a process group do not reach
them. The guard therefore adopts every orphan below it (prctl(2), PR_SET_CHILD_SUBREAPER). It ends all of them when the
command has ended, when the agent requests it, or soon after the agent is gone. It exits as the command did.

There are two guard processes, one the child of the other, because either may be killed. The remaining one then ends
everything at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module typing takes as long to import as half of the others
    from typing import NoReturn

GRACE = 8.5
"""Seconds that the command has to end by itself once the agent is gone. Workers that notice the loss take up to 8 s."""
ENGINE_VARIABLE = "DET_ENGINE_SIGNALS"
"""Environment variable of processes that an engine may send signals to (`det_core.launch.engine_signals`)."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes for a command that could not be started, the same as in a shell."""

_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that the guard ignores, because a command may send them to its process group, which includes the guard."""
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that the guard ignores, too. If they are warnings of an engine, the command starts with them ignored."""
GUARDED_SIGNALS = (*_IGNORED, *_WARNINGS)
"""All signals that the guards ignore."""


def main(channel: int, argv: list[str]) -> NoReturn:
    """Run the command to its end, and exit as it did.

    Args:
        channel: file descriptor of the pipe from the agent, as for `guard_process`.
        argv: the command.
    """
    os.set_inheritable(channel, False)
    code = guard_process(channel, GRACE, partial(_start_command, argv))
    assert code is not None, "the command is another program"
    _exit_as(code)


def guard_process(channel: int, grace: float, start: Callable[[], int]) -> int | None:
    """Run a process below two guards, of which this process becomes the outer one.

    Args:
        channel: file descriptor that reaches its end when the agent is gone. A byte ends everything at once.
        grace: seconds that the process has to end by itself once the agent is gone.
        start: function that starts the process, called in the inner guard. It returns the id of the process, and 0 in
            the process itself if that is a fork.

    Returns:
        The exit code of the process (negative for a signal), once nothing that it started is left. None in the process
        itself.
    """
    for number in GUARDED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    from_outer, to_inner = os.pipe()
    if inner := os.fork():
        os.close(from_outer)
        return _reap(inner, channel, grace)
    os.close(to_inner)
    child = start()
    os.close(channel)
    if child:
        _exit_as(_reap(child, from_outer, 0))
    os.close(from_outer)
    return None


def default_signals() -> list[int]:
    """Return the signals for which the command has default actions, whatever its guards do."""
    return [*_IGNORED, *(() if ENGINE_VARIABLE in os.environ else _WARNINGS)]


def _start_command(argv: list[str]) -> int:
    defaults = [*default_signals(), signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(argv[0], argv, os.environ, setsigdef=defaults, setsigmask=[])
    except OSError as error:
        print(f"cannot start {argv[0]!r}: {error.strerror}", file=sys.stderr)  # noqa: T201  (to the trial's log)
        _exit_as(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def _reap(child: int, channel: int, grace: float) -> int:
    """Wait for the child, end all processes that it left behind, and return its exit code, negative for a signal.

    Args:
        child: process id of the child.
        channel: file descriptor of a pipe that reaches its end when the parent of this process is gone.
        grace: seconds that the child then has to end by itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    threading.Thread(target=_obey, args=(channel, grace), daemon=True).start()
    status = _reap_until(child)
    _end_all()
    return os.waitstatus_to_exitcode(status)


def _obey(channel: int, grace: float) -> None:
    """End everything at once when a byte arrives, or ``grace`` seconds after the end of the stream."""
    try:
        is_ordered = bool(os.read(channel, 1))
    except ConnectionResetError:  # the agent has not read all that it was sent
        is_ordered = False
    if not is_ordered:
        time.sleep(grace)
    while True:
        _kill_descendants()
        time.sleep(0.05)


def _reap_until(command: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            return status


def _end_all() -> None:
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            _kill_descendants()
            os.waitpid(-1, 0)


def _kill_descendants() -> None:
    """Kill everything below this process.

    This reads ``/proc``, because the import of psutil would add two thirds to the processor time of every guard and a
    third to its memory. On other systems psutil would not help, because only Linux hands orphans to the guard.
    """
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            parent = stat.read_text(errors="replace", encoding="utf-8").rpartition(")")[2].split()[1]
            children[int(parent)].append(int(stat.parent.name))
    if not children:  # processes cannot be listed here, so end the whole group, this process included
        os.killpg(0, signal.SIGKILL)
    todo = [os.getpid()]
    while todo:
        for pid in children[todo.pop()]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            todo.append(pid)


def _exit_as(code: int) -> NoReturn:
    """End this process with an exit code, or by a signal if it is negative."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
