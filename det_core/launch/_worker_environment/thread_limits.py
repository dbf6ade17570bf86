"""Thread limits for workers that share the cores of a machine."""

from __future__ import annotations

import os

_VARIABLE = "OMP_NUM_THREADS"


def thread_limit_variables(slots: int, cpus: int | None = None) -> dict[str, str]:
    """Return the environment variable that limits the threads of each worker.

    A value that is already set is kept, unless the number of cores is given. OpenMP threads wait for each other in busy
    loops, so workers that have more threads than there are cores train at a fraction of their speed.

    Args:
        slots: maximum number of workers that share the cores.
        cpus: number of these cores. By default, those that this process may use.
    """
    kept = None if cpus else os.environ.get(_VARIABLE)
    return {_VARIABLE: kept or str(max(1, (cpus or len(os.sched_getaffinity(0))) // slots))}
