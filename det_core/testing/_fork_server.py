"""Server that has imported modules once and forks for each process that would import them again.

Usage: ``python -m det_core.testing._fork_server LISTENER MODULE...``, where LISTENER is an inherited file descriptor.
It ends with its stdin, and its forks end with it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core.plugins import plugin_registry
from det_core.testing._fork_client import LENGTH, STATUS

_PR_SET_PDEATHSIG = 1
_PLUGIN_VARIABLES = ("PYTHONPATH", "DET_DISABLE_PLUGINS")
"""Environment variables that decide which plugins a process finds."""


@dataclass(frozen=True)
class _Fork:
    """A running fork, and the connection of the client that waits for it."""

    pid: int
    handle: int
    client: socket.socket


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._forks: list[_Fork] = []
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(0, selectors.EVENT_READ, lambda: sys.exit(0))
        self._waiting.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> list[str]:
        """Serve requests. Return in each fork, with the arguments of the Python process that it has to be."""
        while True:
            for key, _ in self._waiting.select():
                argv = key.data()
                if argv is not None:
                    return list(argv)

    def _accept(self) -> list[str] | None:
        client, _ = self._listener.accept()
        size, streams, *_ = socket.recv_fds(client, LENGTH.size, 3)
        (length,) = LENGTH.unpack(size)
        request = marshal.loads(client.recv(length, socket.MSG_WAITALL))  # noqa: S302  (from a client of this user)
        parent = os.getpid()
        if pid := os.fork():
            for stream in streams:
                os.close(stream)
            fork = _Fork(pid, os.pidfd_open(pid), client)
            self._forks.append(fork)
            self._waiting.register(client, selectors.EVENT_READ, lambda: self._forward(fork))
            self._waiting.register(fork.handle, selectors.EVENT_READ, lambda: self._bury(fork))
            return None
        self._leave(client)
        return _become(request, streams, parent)

    def _forward(self, fork: _Fork) -> None:
        if fork not in self._forks:  # it has ended in the same moment
            return
        numbers = fork.client.recv(64)
        if not numbers:
            self._waiting.unregister(fork.client)
        for number in numbers or [signal.SIGKILL]:
            os.kill(fork.pid, number)  # not reaped yet, so the number is still its own

    def _bury(self, fork: _Fork) -> None:
        _, status = os.waitpid(fork.pid, 0)
        self._waiting.unregister(fork.handle)
        os.close(fork.handle)
        with contextlib.suppress(KeyError):
            self._waiting.unregister(fork.client)
        with fork.client, contextlib.suppress(BrokenPipeError):  # the client was killed
            fork.client.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
        self._forks.remove(fork)

    def _leave(self, client: socket.socket) -> None:
        """Close what belongs to the server."""
        self._waiting.close()
        self._listener.close()
        client.close()
        for fork in self._forks:
            os.close(fork.handle)
            fork.client.close()


def _become(request: dict[str, Any], streams: list[int], parent: int) -> list[str]:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    os.setsid()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(request["cwd"])
    if any(request["env"].get(name) != os.environ.get(name) for name in _PLUGIN_VARIABLES):
        plugin_registry.cache_clear()
    os.environ.clear()
    os.environ.update(request["env"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    argv: list[str] = request["argv"]
    return argv


class _QuickEnd:
    """End of a fork that skips the end of its interpreter, which would copy all of the memory in order to free it."""

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._end_fork)  # called last, because handlers of the modules are registered later

    def run(self, program: Callable[[], object]) -> None:
        """Run a program, and note its exit code."""
        try:
            program()
        except SystemExit as stop:
            self._code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            raise
        except KeyboardInterrupt:  # ends by a signal
            raise
        except BaseException:
            self._code = 1
            raise
        self._code = 0

    def _end_fork(self) -> None:
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code & 0xFF)


def main(listener: int, modules: list[str]) -> None:
    """Import the modules, then serve."""
    end = _QuickEnd()
    for name in modules:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))  # psutil would then be imported in all workers
    if threads > 1:
        sys.exit(f"the import of {', '.join(modules)} started {threads - 1} threads, which a fork would not have")
    gc.freeze()  # a collection in a fork would copy all of the memory
    argv = _Server(socket.socket(fileno=listener)).serve()
    end.run(lambda: _run_python(argv))


def _run_python(argv: list[str]) -> None:
    """Do what ``python ARGUMENT...`` does."""
    first, *rest = argv
    if first == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
