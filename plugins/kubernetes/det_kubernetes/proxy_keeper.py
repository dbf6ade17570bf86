"""Process that keeps ``kubectl proxy`` running while its stdin is open, and then deletes the pods of its runner.

``python -m det_kubernetes.proxy_keeper SOCKET PODS SELECTOR COMMAND...``: it starts the command, again whenever it
ends, and deletes from PODS, a path in the API, what the selector selects. It outlives a runner that is killed.
"""

from __future__ import annotations

import ctypes
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path

from det_kubernetes._proxy_calls import call

_PR_SET_PDEATHSIG = 1
"""Number of an action of prctl(2)."""
_TICK = 0.5
_RESTART_SECONDS = 1.0
_OPTIONS = {"gracePeriodSeconds": 8}
"""Options of deletions. All processes end within 10 s of their runner."""
_DELETE_SECONDS = 60.0
"""Seconds for which the deletion is tried."""


def main(socket: str, pods: str, selector: str, *command: str) -> int:
    """Run the command until stdin ends, then delete the pods."""
    proxy = _start(command)
    try:
        while not select.select([sys.stdin], [], [], _TICK)[0]:
            if proxy.poll() is not None:
                time.sleep(_RESTART_SECONDS)
                Path(socket).unlink(missing_ok=True)
                proxy = _start(command)
        deadline = time.monotonic() + _DELETE_SECONDS
        while not _delete_pods(socket, pods, selector) and time.monotonic() < deadline:
            time.sleep(_TICK)
    finally:
        proxy.terminate()
        proxy.wait()
    return 0


def _start(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, also if that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _delete_pods(socket: str, pods: str, selector: str) -> bool:
    """Ask for the deletion of all pods, and return whether the server has heard it."""
    with suppress(OSError, HTTPException):
        status, found = call(socket, "GET", pods, query={"labelSelector": selector})
        if status == HTTPStatus.OK:
            names = [one["metadata"]["name"] for one in found["items"]]
            answers = [call(socket, "DELETE", f"{pods}/{name}", _OPTIONS) for name in names]
            return all(status < HTTPStatus.INTERNAL_SERVER_ERROR for status, _ in answers)
        return status < HTTPStatus.INTERNAL_SERVER_ERROR
    return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
