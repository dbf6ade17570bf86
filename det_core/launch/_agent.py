"""Agent of one node, which starts the command, forwards its output, and requests its preemption."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from det_core.core import agent_channel
from det_core.core._cluster_info import INFO_DIR
from det_core.interfaces.launcher import Allocation, LaunchRequest
from det_core.launch._output_lines import RANK_TEMPLATE, LineDecoder
from det_core.launch._reaped_command import ReapedCommand
from det_core.launch._worker_connections import WorkerConnections
from det_core.launch._worker_environment.info_variables import find_oversized_variables, make_info_variables
from det_core.scratch import scratch_directory
from det_core.tracking.remote import StoreCall

_CLOSE_SECONDS = 10.0
"""Seconds to wait for the end of each thread."""
_CHUNK = 1 << 16
_SOCKET_NAME = "agent.sock"
_LONGEST_PARENT = 60
"""Maximum length of the parent directory in bytes, so that the path of the agent's socket is short enough."""


class Agent(Allocation):
    """Processes of one launch on this node, run by a guard that leaves none of them behind.

    Args:
        request: the launch request, with the details that the launcher adds.
        lock: file descriptor that all processes inherit.
        closed: function called at the end of `close`.
        call: function that has a call of the tracking store executed for the workers. None refuses such calls.

    Raises:
        OSError: the processes could not be started.
    """

    def __init__(
        self, request: LaunchRequest, *, lock: int, closed: Callable[[], None], call: StoreCall | None = None
    ) -> None:
        self._log = request.log
        self._closed = closed
        self._scratch = ExitStack()
        self._directory = self._scratch.enter_context(scratch_directory("agent", _short_parent()))
        try:
            for name, content in request.info.items():
                path = self._directory / name
                path.touch(0o600)
                path.write_text(json.dumps(content))
            self._workers = WorkerConnections(self._directory / _SOCKET_NAME, call)
            self._scratch.callback(self._workers.close)
            self._processes = ReapedCommand(
                request.argv, self._environment(request), cwd=request.cwd, inherit=[lock], output=subprocess.PIPE
            )
        except OSError:
            self._scratch.close()
            raise
        self._readers = [self._follow(name, stream) for name, stream in self._processes.streams]

    def wait(self, timeout: float) -> int | None:
        return self._processes.wait(timeout)

    def preempt(self) -> None:
        self._workers.preempt()

    def kill(self) -> None:
        self._processes.kill()

    def close(self) -> None:
        try:
            self._processes.close()
            for reader in self._readers:
                reader.join(_CLOSE_SECONDS)
            self._scratch.close()
        finally:
            self._closed()

    def _environment(self, request: LaunchRequest) -> dict[str, str]:
        described = make_info_variables(request.info)
        for name in find_oversized_variables(described):
            del described[name]
            self._log(None, "det", f"{name} is too long for an environment variable; use det.get_cluster_info()")
        programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        return {
            **os.environ,
            "PATH": os.pathsep.join(programs),  # so that `python3` is the one whose packages det found
            "PYTHONUNBUFFERED": "1",
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": RANK_TEMPLATE,
            **request.env,
            **described,
            INFO_DIR: str(self._directory),
            agent_channel.SOCKET: str(self._directory / _SOCKET_NAME),
        }

    def _follow(self, name: str, stream: IO[bytes]) -> threading.Thread:
        def read() -> None:
            lines, data = LineDecoder(), b"?"
            with stream:
                while data:
                    data = os.read(stream.fileno(), _CHUNK)
                    for rank, text in lines.feed(data):
                        self._log(rank, name, text)

        thread = threading.Thread(target=read, name=f"det-{name}", daemon=True)
        thread.start()
        return thread


def _short_parent() -> Path:
    """Return a directory whose path leaves room for a socket's name (unix(7): 108 bytes in all, macOS 104)."""
    parent = tempfile.gettempdir()
    return Path(parent if len(os.fsencode(parent)) <= _LONGEST_PARENT else "/tmp")  # noqa: S108
