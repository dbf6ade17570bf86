"""Process that an object belongs to, for objects that a forked child must not use like its parent."""

from __future__ import annotations

import os

_present = os.getpid()
"""Id of this process. A system call per batch of a training would take longer than all other checks of a batch."""


def _note_fork() -> None:
    global _present
    _present = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class OwnerProcess:
    """Process that made an object with threads, connections or files, which is the present one.

    A forked child has a copy of the object, but not of its threads, and its parent goes on using the connections and
    files. The child must therefore neither wait for the threads, nor use the connections, nor clean up.

    Args:
        what: name of the object, with which errors begin.
    """

    def __init__(self, what: str = "this object") -> None:
        self._what = what
        self._pid = _present

    @property
    def is_here(self) -> bool:
        """Return whether this is the process, and not a forked child."""
        return _present == self._pid

    def require(self) -> None:
        """Raise an error in a forked child.

        Raises:
            RuntimeError: this is not the process.
        """
        if _present != self._pid:
            raise RuntimeError(
                f"{self._what} belongs to process {self._pid}; a forked child cannot use it, so call it in that process"
            )
