"""Lock that keeps two launches of one trial from running at the same time on one machine."""

from __future__ import annotations

import fcntl
import os
import time

from det_core.errors import LaunchDelayed
from det_core.home import private_directory
from det_core.launch.processes import kill_lock_holders

_GRACE = 10.0
"""Seconds that processes of an earlier run have to end by themselves, as they do when their runner is gone."""
_LOCK_SECONDS = 15.0
"""Seconds to wait for the end of processes of an earlier run."""


class TrialLock:
    """Lock of a trial on this machine, which is held until all processes that inherit its descriptor are gone.

    Args:
        key: name of the trial, as `LaunchRequest.key`.

    Raises:
        OSError: the file of the lock cannot be opened.
    """

    def __init__(self, key: str) -> None:
        self._path = path = private_directory("locks") / f"{key}.lock"
        self._began = time.monotonic()
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_to_lock(self) -> bool:
        """Try to lock the file, and end its holders if they do not end by themselves.

        Raises:
            LaunchDelayed: processes hold the lock that belong to another user or cannot be ended.
        """
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - self._began
        else:
            return True
        if waited > _GRACE:
            kill_lock_holders(self._path)
        if waited > _LOCK_SECONDS:
            raise LaunchDelayed(
                f"processes of an earlier run of {self._path.stem} are still alive after {_LOCK_SECONDS:.0f} s; "
                f"find them with: fuser -v {self._path}"
            )
        return False

    def close(self) -> None:
        """Close this process's descriptor of the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
