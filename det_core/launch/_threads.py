"""Workers that train at once share the cores of their machine."""

from __future__ import annotations

import os

_VARIABLE = "OMP_NUM_THREADS"


def threads(slots: int) -> dict[str, str]:
    """The variable that limits the threads of each worker, unless it is set already.

    Threads of OpenMP wait for each other busily, so workers with more of them than there are cores train at a
    fraction of their speed.

    Args:
        slots: how many workers there may be on this machine.
    """
    return {_VARIABLE: os.environ.get(_VARIABLE) or str(max(1, len(os.sched_getaffinity(0)) // slots))}
