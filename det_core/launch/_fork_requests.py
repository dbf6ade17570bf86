"""Requests to a prepared process, by its runner and by forks that start other processes of the same launch."""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from det_core.errors import LaunchError
from det_core.launch._guarded_command import GuardedCommand

LENGTH = struct.Struct("!I")
"""Size of a request in bytes. It is sent before the request, with the descriptors of the standard streams, of the
prepared process if the fork may call it, and of files that all processes keep open."""
STARTED = struct.Struct("!ii")
"""Process ids of the outer guard and of the process, which sends them."""
ENDED = struct.Struct("!i")
"""Exit code of the process, negative for a signal, sent once nothing that it started is left."""

_SECONDS = 20.0
"""Seconds that a fork may take, on a machine that swaps."""


class ForkedCommand(GuardedCommand):
    """Process that a prepared process has forked below two guards.

    Args:
        connection: file descriptor of the connection to the outer guard, the only process that has its other end.
        guard: process id of the outer guard.
        pid: id of the process.
    """

    def __init__(self, connection: int, guard: int, pid: int) -> None:
        super().__init__(connection)
        self.pid = pid
        self._guard = guard
        self._code: int | None = None

    def wait(self, timeout: float | None) -> int | None:
        if self._code is None:
            poll = select.poll()
            poll.register(self._to_guard, select.POLLIN)
            if poll.poll(None if timeout is None else 1000 * timeout):
                self._code = self._receive_code()
        return self._code

    def _receive_code(self) -> int:
        answer = b""
        with suppress(ConnectionResetError):
            answer = os.read(self._to_guard, ENDED.size)
        return int(ENDED.unpack(answer)[0]) if answer else -signal.SIGKILL  # the guard was killed

    def _kill_guard(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._guard, signal.SIGKILL)


def request_fork(
    server: socket.socket,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    outputs: Sequence[int],
    inherit: Sequence[int],
    grace: float,
    leads_session: bool = False,
    starts_others: bool = False,
) -> ForkedCommand:
    """Request a process that does what ``python -m MODULE ARGUMENT...`` does.

    Args:
        server: socket of the prepared process, which has a time limit in all processes that use it.
        argv: name of the module, and the arguments.
        env: its whole environment.
        cwd: its working directory.
        outputs: file descriptors that become stdout and stderr.
        inherit: file descriptors that the process, its guards and those that it starts keep open.
        grace: seconds that the process has to end by itself once this one is gone.
        leads_session: whether it leads a session, as the workers of torchrun do. Otherwise its outer guard does.
        starts_others: whether it starts other processes of its launch, and is not a worker.

    Raises:
        LaunchError: nothing was forked.
    """
    request = {
        "argv": [*argv],
        "env": {**env},
        "cwd": str(cwd),
        "grace": grace,
        "leads_session": leads_session,
        "starts_others": starts_others,
    }
    body = marshal.dumps(request)
    ours, theirs = socket.socketpair()
    ours.settimeout(_SECONDS)
    try:
        with theirs:
            socket.send_fds(server, [b"+"], [theirs.fileno()])
        with Path(os.devnull).open("rb") as nothing:
            descriptors = [nothing.fileno(), *outputs, *([server.fileno()] if starts_others else []), *inherit]
            socket.send_fds(ours, [LENGTH.pack(len(body))], descriptors)
        ours.sendall(body)
        guard, pid = STARTED.unpack(ours.recv(STARTED.size, socket.MSG_WAITALL))
    except (OSError, struct.error) as error:
        with suppress(OSError):
            ours.send(b"!")  # a fork that comes late ends at once
        ours.close()
        raise LaunchError("the prepared process has died or does not answer") from error
    return ForkedCommand(ours.detach(), guard, pid)


class ForkServer:
    """Prepared process from which this process was forked, and may fork others that end with it.

    Args:
        descriptor: file descriptor of the socket of the prepared process.
        inherit: file descriptors that all processes of the launch keep open.
    """

    def __init__(self, descriptor: int, inherit: Sequence[int]) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        set_time_limit(self._socket)
        self._inherit = inherit

    def fork(self, argv: Sequence[str], env: Mapping[str, str], outputs: Sequence[int], **flags: bool) -> ForkedCommand:
        """Fork a process, with the arguments of `request_fork`.

        Raises:
            LaunchError: nothing was forked.
        """
        return request_fork(
            self._socket, argv, env, cwd=Path.cwd(), outputs=outputs, inherit=self._inherit, grace=0, **flags
        )


def set_time_limit(server: socket.socket) -> None:
    """Limit the time of requests. All processes that share the socket do so, because it changes a flag of it."""
    server.settimeout(_SECONDS)


server: ForkServer | None = None
"""The prepared process from which this process may fork others, set at the start of such a fork."""
