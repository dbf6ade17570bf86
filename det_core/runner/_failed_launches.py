"""Launches of a search that have failed in a row."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping

from det_core.runner._restart_policy import Count


class FailedLaunches:
    """Launches of a search that have failed since the last one that succeeded. It may be used from any thread."""

    def __init__(self) -> None:
        self._in_a_row: list[int] = []
        """Trials of these launches, in order."""
        self._successes = 0
        self._failed_after: defaultdict[int, set[int]] = defaultdict(set)
        """Numbers of successes of the whole search after which each trial has failed since its own last success."""
        self._lock = threading.Lock()

    @property
    def trials(self) -> set[int]:
        """Ids of the trials of these launches."""
        with self._lock:
            return set(self._in_a_row)

    def add_success(self, trial_id: int) -> None:
        """Record that the processes of a trial run."""
        with self._lock:
            self._successes += 1
            self._in_a_row.clear()
            self._failed_after.pop(trial_id, None)

    def add_failure(self, trial_id: int) -> Mapping[Count, float]:
        """Record that a trial could not be launched, and return the new numbers."""
        with self._lock:
            self._in_a_row.append(trial_id)
            self._failed_after[trial_id].add(self._successes)
            return {
                Count.FAILED_LAUNCHES: len(self._in_a_row),
                Count.PASSED_OVER: len(self._failed_after[trial_id]) - 1,
            }
