"""Processes that have imported modules, from which workers are forked."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import det_core
from det_core.errors import LaunchError
from det_core.launch._fork_requests import ForkedCommand, request_fork, set_time_limit
from det_core.launch._fork_server import MOST_PRINTED
from det_core.launch._guard import GRACE

_READY_SECONDS = 300.0
"""Seconds that the import of the modules may take."""
_END_SECONDS = 5.0
"""Seconds that a prepared process has to end by itself."""
_KEPT = 2
"""Number of processes that are kept, those used last. The launches of one experiment need the same one."""


class PreparedProcess:
    """Process that imports modules, then forks workers. Nothing that was forked ends with it.

    Args:
        modules: the modules.
        env: its whole environment, which the workers inherit.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self.problem: str | None = None
        """Why it cannot fork workers, "" if it can, or None as long as this is unknown."""
        self.names: Collection[str] = ()
        """Top-level names of the modules that it has, once it can fork workers."""
        self._answered = threading.Event()
        self._socket, theirs = socket.socketpair()
        printed, output = os.pipe()
        with suppress(OSError):  # this user has too many large pipes
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, MOST_PRINTED)
        # The others are relative to the directory of the worker.
        paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if Path(path).is_absolute()]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "det_core.launch._fork_server", str(theirs.fileno()), str(printed), *modules],
                cwd=Path(det_core.__file__).parent.parent,
                env={**env, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[theirs.fileno(), printed],
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
            os.close(printed)
            os.close(output)
        threading.Thread(target=self._receive_answer, name="det-prepared", daemon=True).start()

    @property
    def has_died(self) -> bool:
        """Whether it is gone, though it could fork workers."""
        return not self.problem and self._process.poll() is not None

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until `problem` is known, and return whether it is."""
        return self._answered.wait(timeout)

    def fork(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path,
        outputs: Sequence[int],
        inherit: Sequence[int],
        starts_others: bool = False,
    ) -> ForkedCommand:
        """Fork a process below two guards that does what ``python -m MODULE ARGUMENT...`` does.

        Args:
            argv: name of the module, and the arguments.
            env: its whole environment.
            cwd: its working directory.
            outputs: file descriptors that become stdout and stderr.
            inherit: file descriptors that all processes keep open.
            starts_others: whether it starts other processes, and is not a worker.

        Raises:
            LaunchError: nothing was forked.
        """
        try:
            return request_fork(
                self._socket,
                argv,
                env,
                cwd=cwd,
                outputs=outputs,
                inherit=inherit,
                grace=GRACE,
                starts_others=starts_others,
            )
        except LaunchError:
            self._process.kill()  # the request may still be in its queue, with the descriptors
            self.close()
            raise

    def pass_connection(self, connection: socket.socket) -> None:
        """Pass a connection on which a request will arrive.

        Raises:
            OSError: the process is gone.
        """
        socket.send_fds(self._socket, [b"+"], [connection.fileno()])

    def close(self) -> None:
        """End the process. One that imports modules is killed."""
        if self.problem != "":
            self._process.kill()
        with suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the kernel cannot end it
                self._process.wait(_END_SECONDS)
        self._socket.close()

    def _receive_answer(self) -> None:
        self._socket.settimeout(_READY_SECONDS)
        try:
            with self._socket.makefile("rb") as answers:
                answer = answers.readline()
            set_time_limit(self._socket)
        except TimeoutError:
            self.problem = f"the modules were not imported within {_READY_SECONDS:.0f} s"
        except OSError:  # closed meanwhile
            self.problem = "the prepared process was closed"
        else:
            try:
                self.names, self.problem = json.loads(answer)
            except (ValueError, TypeError):  # it died, or det was upgraded meanwhile
                self.problem = "the prepared process did not answer as expected"
        self._answered.set()


class PreparedProcesses:
    """The prepared processes of this process, which all its launchers share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[object, PreparedProcess] = {}

    def get(self, modules: Sequence[str], env: Mapping[str, str]) -> PreparedProcess:
        """Return the process with these modules and this environment, which is started if there is none.

        Raises:
            OSError: it could not be started.
        """
        key = (tuple(modules), frozenset(env.items()))
        with self._lock:
            found = self._kept.pop(key, None)
            if found and found.has_died:
                found.close()
                found = None
            found = found or PreparedProcess(modules, env)
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.pop(next(iter(self._kept))).close()
            return found

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1].close()


@cache
def prepared_processes() -> PreparedProcesses:
    """Return the prepared processes of this process. They end with it."""
    processes = PreparedProcesses()
    atexit.register(processes.close)
    return processes


def find_preparation_problem(modules: Sequence[str]) -> str:
    """Return why workers cannot be forked from a process that has imported the modules.

    It is "" if they can, and on other systems than Linux, where they never are.
    """
    if sys.platform != "linux":
        return ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with closing(PreparedProcess(modules, environment)) as prepared:
        prepared.wait(_READY_SECONDS)
        return prepared.problem or ""
