"""The worker's end of the channel to the agent that started it.

The agent listens on a Unix socket. The line ``preempt`` asks the worker to leave; the end of the
stream means that the agent is gone, and the worker must not outlive it for long.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

SOCKET = "DET_AGENT_SOCKET"
"""Environment variable: the path of the agent's socket."""
PREEMPT = b"preempt\n"
GRACE = 8.0
"""Seconds in which an orphan may finish its batch and checkpoint."""


class AgentChannel:
    """Listens to the agent in a thread of its own.

    Args:
        request: called with ``"runner"`` or ``"runner lost"`` when the worker is to leave.
    """

    def __init__(self, path: str, request: Callable[[str], None]) -> None:
        self._request = request
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(GRACE)
        self._socket.connect(path)
        self._socket.settimeout(None)
        self._closing = False
        threading.Thread(target=self._listen, name="det-agent-channel", daemon=True).start()

    def close(self) -> None:
        self._closing = True
        self._socket.close()

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    if line == PREEMPT:
                        self._request("runner")
        except (OSError, ValueError):
            pass  # the same as the end of the stream
        if not self._closing:
            self._survive_briefly()

    def _survive_briefly(self) -> None:
        deadline = threading.Timer(GRACE, os._exit, (1,))
        deadline.daemon = True
        deadline.start()
        try:
            # The pipes for our output ended with the agent. A print to them would prevent the checkpoint.
            null = os.open(os.devnull, os.O_WRONLY)
            for descriptor in (1, 2):  # the script may have replaced sys.stdout
                os.dup2(null, descriptor)
        finally:
            self._request("runner lost")
