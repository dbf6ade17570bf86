"""Lock that keeps two launches of one trial from running at the same time on one machine."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from det_core.errors import LaunchDelayed
from det_core.launch._slot_directory import SlotDirectory
from det_core.processes import kill_lock_holders

_PREFIX = "lock-"
_GRACE = 10.0
"""Seconds that processes of an earlier run have to end by themselves, as they do when their runner is gone."""
_LOCK_SECONDS = 15.0
"""Seconds to wait for the end of processes of an earlier run."""


class TrialLock:
    """Lock of a trial on this machine, which is held until all processes that inherit its descriptor are gone.

    Its file is in the directory of the slots, which belongs to this machine, while ``DET_HOME`` may be that of another.

    Args:
        key: name of the trial, as `LaunchRequest.key`.

    Raises:
        LaunchError, BlockingIOError: as `SlotDirectory`.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._name = f"{_PREFIX}{key}"
        self._directory: SlotDirectory | None = SlotDirectory()
        self._path = self._directory.path / self._name
        self._began = time.monotonic()
        self.descriptor = -1

    def try_to_lock(self) -> bool:
        """Try to lock the file, and end its holders if they do not end by themselves.

        Raises:
            LaunchDelayed: processes hold the lock that belong to another user or cannot be ended.
            LaunchError: as `SlotDirectory.lock`.
        """
        try:
            if self.descriptor < 0:
                self.descriptor = self._present_directory().lock(self._name)
        except (BlockingIOError, FileNotFoundError):  # another process looks at the same file, or removes it
            waited = time.monotonic() - self._began
        else:
            return True
        if waited > _GRACE:
            with suppress(FileNotFoundError):  # its last holder has just removed it
                kill_lock_holders(self._path)
        if waited > _LOCK_SECONDS:
            raise LaunchDelayed(
                f"processes of an earlier run of {self._key} are still alive after {_LOCK_SECONDS:.0f} s; "
                f"find them with: fuser -v {self._path}"
            )
        return False

    def _present_directory(self) -> SlotDirectory:
        """Return the directory of the slots, which another process may have replaced while it was empty."""
        assert self._directory, "the lock is closed"
        if not self._directory.is_current:
            replaced, self._directory = self._directory, SlotDirectory()
            replaced.close()
        return self._directory

    def hand_over(self) -> None:
        """Close this process's descriptor of the file, so that only the processes that have inherited it hold it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """Give up the lock, and remove its file if no other process holds it."""
        self.hand_over()
        if self._directory:
            self._directory.remove_unlocked(self._name)
            self._directory.close()
            self._directory = None
