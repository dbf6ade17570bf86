"""Thread limits for workers that share the cores of a machine."""

from __future__ import annotations

import os

_VARIABLE = "OMP_NUM_THREADS"


def thread_limit_variables(slots: int) -> dict[str, str]:
    """Return the environment variable that limits the threads of each worker.

    A value that is already set is kept. OpenMP threads wait for each other in busy loops, so workers that have more
    threads than there are cores train at a fraction of their speed.

    Args:
        slots: maximum number of workers on this machine.
    """
    return {_VARIABLE: os.environ.get(_VARIABLE) or str(max(1, len(os.sched_getaffinity(0)) // slots))}
