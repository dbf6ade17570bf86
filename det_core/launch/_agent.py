"""Agent of one node, which starts the command, forwards its output, and requests its preemption."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from det_core.core import agent_channel
from det_core.core._cluster_info import INFO_DIR
from det_core.interfaces.launcher import Allocation, LaunchRequest
from det_core.launch._output_lines import RANK_TEMPLATE, LineDecoder
from det_core.launch._reaped_command import ReapedCommand
from det_core.launch._worker_environment.info_variables import find_oversized_variables, make_info_variables
from det_core.scratch import scratch_directory

_CLOSE_SECONDS = 10.0
"""Seconds to wait for the end of each thread."""
_CHUNK = 1 << 16
_LONGEST_PARENT = 60
"""Maximum length of the parent directory in bytes, so that the path of the agent's socket is short enough."""


class Agent(Allocation):
    """Processes of one launch on this node, run by a guard that leaves none of them behind.

    Args:
        request: the launch request, with the details that the launcher adds.
        locks: file descriptors that all processes inherit.
        closed: function called at the end of `close`.

    Raises:
        OSError: the processes could not be started.
    """

    def __init__(self, request: LaunchRequest, *, locks: Sequence[int], closed: Callable[[], None]) -> None:
        self._log = request.log
        self._closed = closed
        self._scratch = ExitStack()
        self._directory = self._scratch.enter_context(scratch_directory("agent", _short_parent()))
        self._preempting = False
        self._clients: list[socket.socket] = []
        self._clients_lock = threading.Lock()
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            for name, content in request.info.items():
                path = self._directory / name
                path.touch(0o600)
                path.write_text(json.dumps(content))
            self._listen()
            self._processes = ReapedCommand(
                request.argv, self._environment(request), cwd=request.cwd, inherit=locks, output=subprocess.PIPE
            )
        except OSError:
            self._server.close()
            self._scratch.close()
            raise
        self._readers = [self._follow(name, stream) for name, stream in self._processes.streams]

    def wait(self, timeout: float) -> int | None:
        return self._processes.wait(timeout)

    def preempt(self) -> None:
        with self._clients_lock:
            self._preempting = True
            for client in self._clients:
                _send_preempt(client)

    def kill(self) -> None:
        self._processes.kill()

    def close(self) -> None:
        try:
            self._processes.close()
            for reader in self._readers:
                reader.join(_CLOSE_SECONDS)
            with suppress(OSError):  # macOS, where closing is enough
                self._server.shutdown(socket.SHUT_RDWR)  # ends accept(), which close() does not
            self._server.close()
            self._listener.join(_CLOSE_SECONDS)
            with self._clients_lock:
                for client in self._clients:
                    client.close()
            self._scratch.close()
        finally:
            self._closed()

    def _listen(self) -> None:
        self._server.bind(str(self._directory / "agent.sock"))
        self._server.listen()
        self._listener = threading.Thread(target=self._accept, name="det-agent", daemon=True)
        self._listener.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return  # closed
            with self._clients_lock:
                self._clients.append(client)
                if self._preempting:
                    _send_preempt(client)

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
            agent_channel.SOCKET: str(self._directory / "agent.sock"),
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


def _send_preempt(client: socket.socket) -> None:
    with suppress(OSError):  # the client has disconnected
        client.sendall(agent_channel.PREEMPT)
