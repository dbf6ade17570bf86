"""Worker's end of the connection to the agent that started it.

The agent listens on a Unix socket. The line ``preempt`` requests that the worker stops. The end of the stream means
that the agent has ended. The worker then has `GRACE` seconds to stop. The worker sends nothing on this connection. On
other connections to the same socket it can make calls of the tracking store (`det_core.tracking.remote`).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from det_core.tracking._open import AGENT_SOCKET

SOCKET = AGENT_SOCKET
PREEMPT = b"preempt\n"
GRACE = 8.0
"""Seconds that a worker without an agent has to finish its batch and its checkpoint."""


class AgentChannel:
    """Background listener for the agent's requests.

    Args:
        path: path of the agent's socket.
        request: function called with ``"runner"`` or ``"runner lost"`` when the worker has to stop.
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
        """Close the connection. The end of the stream then has no effect."""
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
            # The agent's end closed the pipes of this process's output. A print would fail and prevent the checkpoint.
            null = os.open(os.devnull, os.O_WRONLY)
            for descriptor in (1, 2):  # the script may have replaced sys.stdout
                os.dup2(null, descriptor)
        finally:
            self._request("runner lost")
