"""The agent of one node: it starts the worker, passes on its output, and tells it when to leave."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from det_core.core import agent_channel
from det_core.core._info import INFO_DIR
from det_core.errors import LaunchError
from det_core.interfaces.launcher import Allocation, LaunchRequest

_LONGEST_LINE = 1 << 16
_PATIENCE = 10.0
"""Seconds for threads and killed processes to end."""


class Agent(Allocation):
    """Runs the processes of one launch on this node.

    The worker leads a session of its own, so that a Ctrl-C in the terminal reaches the runner alone,
    and so that everything it started can be ended with it.
    """

    def __init__(self, request: LaunchRequest, *, slot_ids: Sequence[int], lock: int) -> None:
        self._log = request.log
        self._directory = _private_directory()
        self._preempting = False
        self._clients: list[socket.socket] = []
        self._clients_lock = threading.Lock()
        try:
            self._write_info(request, slot_ids)
            self._server = self._listen()
            self._process = self._start(request, lock)
        except OSError as error:
            shutil.rmtree(self._directory)
            raise LaunchError(f"cannot start {request.argv[0]!r}: {error}") from error
        self._readers = [self._follow(name, stream) for name, stream in self._streams()]

    def wait(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def preempt(self) -> None:
        with self._clients_lock:
            self._preempting = True
            for client in self._clients:
                _tell(client)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_PATIENCE)

    def close(self) -> None:
        self.kill()  # what the worker started and left behind
        for reader in self._readers:
            reader.join(_PATIENCE)
        self._server.close()
        with self._clients_lock:
            for client in self._clients:
                client.close()
        shutil.rmtree(self._directory)

    def _write_info(self, request: LaunchRequest, slot_ids: Sequence[int]) -> None:
        for name, content in request.info.items():
            extra = {"slot_ids": list(slot_ids)} if name == "cluster.json" else {}
            (self._directory / name).write_text(json.dumps({**content, **extra}))

    def _listen(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(self._directory / "agent.sock"))
        server.listen()
        threading.Thread(target=self._accept, args=(server,), name="det-agent", daemon=True).start()
        return server

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return  # closed
            with self._clients_lock:
                self._clients.append(client)
                if self._preempting:
                    _tell(client)

    def _start(self, request: LaunchRequest, lock: int) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **request.env,
            INFO_DIR: str(self._directory),
            agent_channel.SOCKET: str(self._directory / "agent.sock"),
        }
        return subprocess.Popen(
            request.argv,
            cwd=request.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=(lock,),
        )

    def _streams(self) -> list[tuple[str, IO[str]]]:
        assert self._process.stdout and self._process.stderr
        return [("stdout", self._process.stdout), ("stderr", self._process.stderr)]

    def _follow(self, name: str, stream: IO[str]) -> threading.Thread:
        def read() -> None:
            with stream:
                while line := stream.readline(_LONGEST_LINE):
                    self._log(0, name, line.rstrip("\n"))

        thread = threading.Thread(target=read, name=f"det-{name}", daemon=True)
        thread.start()
        return thread


def _private_directory() -> Path:
    """A new directory of mode 0700 whose path leaves room for a socket's name (unix(7): 108 bytes in all)."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="det-", dir=parent if len(os.fsencode(parent)) < 80 else "/tmp"))  # noqa: S108


def _tell(client: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has left already
        client.sendall(agent_channel.PREEMPT)
