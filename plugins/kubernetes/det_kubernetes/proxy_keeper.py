"""Process that keeps ``kubectl proxy`` running while its stdin is open, and then deletes the pods of its runner.

``python -m det_kubernetes.proxy_keeper SOCKET PODS SELECTOR SECONDS COMMAND...``: it starts the command, again whenever
it ends, and deletes from PODS, a path in the API, what the selector selects. It outlives a runner that is killed, whose
running pods another runner may adopt. It therefore deletes those only once their agents have ended the workers, after
SECONDS and some more. A runner that closes its launches writes `CLOSED` to stdin before its end.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
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
CLOSED = b"closed"
GRACE_SECONDS = 8
"""Seconds until the processes of a pod that nobody needs are killed. All end within 10 s of their runner."""
_TICK = 0.5
_WAIT_SECONDS = 2.0
"""Seconds between two looks at pods that wait for another runner."""
_SILENCE_SECONDS = 60.0
"""Seconds after which an agent notices that its runner is frozen."""
_KILL_SECONDS = 30.0
"""Seconds that an agent may need to end its workers, and more."""
_LATER = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, *(one for one in HTTPStatus if one >= 500))
"""Answers after which a deletion is repeated."""
_RESTART_SECONDS = 1.0
_TERMINATE_SECONDS = 5.0
"""Seconds that the command has to end after SIGTERM."""
_DELETE_SECONDS = 60.0
"""Seconds for which the deletion is tried."""


def main(socket: str, pods: str, selector: str, reconnect_seconds: str, *command: str) -> int:
    """Run the command until stdin ends, then delete the pods."""
    proxy = _start(command)
    try:
        while not select.select([sys.stdin], [], [], _TICK)[0]:
            if proxy.poll() is not None:
                time.sleep(_RESTART_SECONDS)
                Path(socket).unlink(missing_ok=True)
                proxy = _start(command)
        _keep_directory(socket)
        was_killed = not sys.stdin.buffer.read()
        survive = float(reconnect_seconds)
        waits = seconds_until_ended(survive) if survive and was_killed else 0.0
        _delete_all(socket, pods, selector, waits)
    finally:
        _end(proxy)
    return 0


def seconds_until_ended(reconnect_seconds: float) -> float:
    """Return the seconds after which agents must have ended the workers, counted from the loss of their runner.

    Args:
        reconnect_seconds: seconds for which workers outlive a lost connection.
    """
    return max(reconnect_seconds, _SILENCE_SECONDS) + _KILL_SECONDS


def seconds_until_deleted(reconnect_seconds: float) -> float:
    """Return the seconds within which the pods are deleted, counted from the loss of their runner."""
    return seconds_until_ended(reconnect_seconds) + _DELETE_SECONDS


def _delete_all(socket: str, pods: str, selector: str, seconds: float) -> None:
    """Delete the pods, those that run after a number of seconds. Other runners may make them their own meanwhile."""
    late_at = time.monotonic() + seconds
    while time.monotonic() < late_at + _DELETE_SECONDS and Path(socket).exists():
        left = _delete_pods(socket, pods, selector, spared="" if time.monotonic() >= late_at else "Running")
        if left == 0:
            break
        time.sleep(_TICK if left is None else _WAIT_SECONDS)


def _keep_directory(socket: str) -> None:
    """Keep others from removing the directory of the socket as that of a process that was killed."""
    with suppress(OSError):  # it has been removed
        fcntl.flock(os.open(Path(socket).parents[1], os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _start(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=_end_with_parent)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_TERMINATE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, also if that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _delete_pods(socket: str, pods: str, selector: str, *, spared: str) -> int | None:
    """Ask for the deletion of pods in all phases but one. Return how many are left to do, or None if it is unknown."""
    with suppress(OSError, HTTPException):
        status, found = call(socket, "GET", pods, query={"labelSelector": selector})
        if status != HTTPStatus.OK:
            return None if status >= HTTPStatus.INTERNAL_SERVER_ERROR else 0
        left = 0
        for pod in found["items"]:
            name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
            options = {"gracePeriodSeconds": GRACE_SECONDS, "preconditions": {"resourceVersion": version}}
            is_spared = pod.get("status", {}).get("phase") == spared
            if is_spared or call(socket, "DELETE", f"{pods}/{name}", options)[0] in _LATER:
                left += 1
        return left
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
