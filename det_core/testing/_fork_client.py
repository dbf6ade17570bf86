"""Stand-in for a Python process that a fork server runs, ``python -S _fork_client.py SOCKET ARGUMENT...``.

It passes its environment, directory and streams on, forwards signals, and ends as that process does. If it is killed,
the server kills that process, too.
"""

from __future__ import annotations

import marshal  # json and pathlib would take as long as all the rest
import os
import signal
import socket
import struct
import sys

LENGTH = struct.Struct("!I")
"""Size of a request in bytes, sent before it with the standard streams."""
STATUS = struct.Struct("!i")
"""Exit code of the process, negative for a signal."""
_FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main(address: str, argv: list[str]) -> int:
    """Run ``python ARGUMENT...`` in a fork of the server, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        request = marshal.dumps({"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()})  # noqa: PTH109
        for number in _FORWARDED:
            signal.signal(number, lambda received, _: server.sendall(bytes([received])))
        socket.send_fds(server, [LENGTH.pack(len(request))], [0, 1, 2])
        server.sendall(request)
        try:
            answer = server.recv(STATUS.size, socket.MSG_WAITALL)
        except ConnectionResetError:
            answer = b""
    if len(answer) < STATUS.size:
        sys.exit("the fork server has ended")
    (code,) = STATUS.unpack(answer)
    if code < 0:
        if -code in _FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
