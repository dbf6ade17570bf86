"""Timer for the checkpoints of a trial whose config names no checkpoint period."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

_STALLS = 20
"""Minimum time of training between two checkpoints, as a multiple of the time for which the first stops it."""


class CheckpointTimer:
    """Timer that says when a checkpoint is due. Each checkpoint restarts it, whatever its reason.

    Args:
        seconds: seconds of training until a checkpoint is due, >= 0. 0 stands for never.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds or math.inf
        self._due_at = monotonic() + self._seconds

    def is_due(self) -> bool:
        """Return whether the last checkpoint is old enough for another one."""
        return monotonic() >= self._due_at

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Restart the timer at the end of the block, in which training stands still for a checkpoint."""
        start = monotonic()
        yield
        end = monotonic()
        self._due_at = end + max(self._seconds, _STALLS * (end - start))
