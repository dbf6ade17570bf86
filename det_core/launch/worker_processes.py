"""Start of the processes of a launch. They are forks if this process is a fork of a prepared process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import BinaryIO

from det_core.errors import LaunchError
from det_core.launch import _fork_requests
from det_core.launch._fork_requests import ForkedCommand
from det_core.launch._guarded_command import GuardedCommand, SpawnedCommand

__all__ = ["ForkedWorker", "Worker", "start_worker"]


class ForkedWorker:
    """Worker that a prepared process has forked, with the methods of `subprocess.Popen` that launchers call.

    Args:
        command: the process.
        stdout: as the attribute.
        stderr: as the attribute.
    """

    def __init__(self, command: ForkedCommand, stdout: BinaryIO, stderr: BinaryIO) -> None:
        self._command = command
        self.pid = command.pid
        """Process id, which is also that of its session."""
        self.stdout = stdout
        """Reading end of the pipe that is its stdout."""
        self.stderr = stderr
        """Reading end of the pipe that is its stderr."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None if the worker has not ended."""
        return self._command.wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the worker and of all processes that it has started, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: the worker has not ended within ``timeout`` seconds.
        """
        code = self._command.wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Send SIGTERM, unless the worker has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless the worker has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


Worker = subprocess.Popen[bytes] | ForkedWorker
"""Process of a worker."""


def start_worker(argv: Sequence[str], env: Mapping[str, str]) -> Worker:
    """Start a worker that leads a session, and whose stdout and stderr are pipes.

    It is a fork, which need not import its modules, if the runner has started this process from a process that has
    imported them.

    Args:
        argv: its command line, as given to `det_core.interfaces.backend.Backend.start`.
        env: its whole environment.

    Raises:
        OSError: it could not be started.
    """

    with ExitStack() as undo, ExitStack() as passed:
        sources, outputs = [], []
        for _ in range(2):
            source, output = os.pipe()
            passed.callback(os.close, output)
            sources.append(undo.enter_context(os.fdopen(source, "rb")))
            outputs.append(output)
        if command := _fork(argv, env, outputs, leads_session=True):
            undo.pop_all()
            return ForkedWorker(command, *sources)
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def start_launcher(argv: Sequence[str], env: Mapping[str, str]) -> GuardedCommand:
    """Start the launcher of a backend below guards, with the streams of this process.

    Args:
        argv: its command line.
        env: its whole environment.

    Raises:
        OSError: it could not be started.
    """
    # The starter of this process may wait for the end of all processes that inherit its lock.
    return _fork(argv, env, [1, 2], starts_others=True) or SpawnedCommand(argv, env, inherit=None)


def _fork(argv: Sequence[str], env: Mapping[str, str], outputs: Sequence[int], **flags: bool) -> ForkedCommand | None:
    """Fork ``python -m MODULE ARGUMENT...``, or return None if that is not possible."""
    server = _fork_requests.server
    if server is None or [*argv[:2]] != [sys.executable, "-m"]:
        return None
    try:
        return server.fork(argv[2:], env, outputs, **flags)
    except LaunchError as error:
        print(f"{argv[2]} starts as a new process, because {error}", file=sys.stderr)  # noqa: T201
        return None
