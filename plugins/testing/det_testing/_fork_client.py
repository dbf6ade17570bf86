"""Stand-in for a Python process that is a fork, ``python -S _fork_client.py SOCKET ARGUMENT...``.

It passes its environment, directory and streams on, forwards signals, and ends as that process does. If it is killed,
that process ends, too.
"""

from __future__ import annotations

import contextlib
import marshal  # json and pathlib would take as long as all the rest
import os
import signal
import socket
import struct
import sys

LENGTH, STARTED, ENDED = struct.Struct("!I"), struct.Struct("!ii"), struct.Struct("!i")
"""Formats of `det_core.launch._fork_requests`, whose import would take longer than all the rest."""
_FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(address: str, argv: list[str]) -> int:
    """Run ``python ARGUMENT...`` in a fork, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        program, flags = ["det_testing._fork_program", *argv], {"leads_session": False, "starts_others": False}
        request = marshal.dumps({"argv": program, "env": dict(os.environ), "cwd": os.getcwd(), "grace": 0, **flags})  # noqa: PTH109
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until there is a process to send them to
        socket.send_fds(server, [LENGTH.pack(len(request))], [0, 1, 2])
        server.sendall(request)
        _, process = STARTED.unpack(_receive(server, STARTED.size))
        for number in _FORWARDED:
            signal.signal(number, lambda received, _: os.kill(process, received))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        (code,) = ENDED.unpack(_receive(server, ENDED.size))
    if code < 0:
        if -code in _FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return int(code)


def _receive(server: socket.socket, size: int) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        answer = server.recv(size, socket.MSG_WAITALL)
    if len(answer) < size:
        sys.exit("the fork server has ended")
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
