"""Detection of failures that a restart would only repeat."""

from __future__ import annotations

import re
import time
from typing import Any

from det_core.interfaces.records import TRAINING_STATE
from det_core.interfaces.tracking import TrackingStore

_TRANSIENT = re.compile(
    r"PeerLost|RankFailed|CommError|StorageError|TrackingError|StoreBusy|StaleRun|connection|broken pipe|timed? ?out|"
    r"temporar|unavailable|out of memory|no space left|too many open files|the process died",
    re.IGNORECASE,
)
"""Errors whose cause may be gone at the next start."""
_VARIES = re.compile(r"0x[0-9a-f]+|/det-context-\w+", re.IGNORECASE)
"""Memory addresses and directories of the code, which differ between runs."""
_SIGNALED = 128
"""Lowest exit code of a shell whose command was killed by a signal."""
_SILENT_TRAINING = 60.0
"""Seconds after which a command that reports nothing may have trained."""


class RepeatedFailureDetector:
    """Detects runs of one trial that fail in the same way before they have trained a batch.

    Args:
        store: the tracking store of the trial.
        trial_id: the trial to watch.
        is_silent: whether the trial may train without reporting it.
    """

    def __init__(self, store: TrackingStore, trial_id: int, *, is_silent: bool) -> None:
        self.has_trained = False
        """Whether one of the runs may have trained a batch."""
        self._store = store
        self._trial_id = trial_id
        self._is_silent = is_silent
        self._cause = ""

    def started(self) -> None:
        """Record that a run starts."""
        self._began = time.monotonic()
        self._before = self._traces()

    def failed_again(self, code: int, error: str) -> bool:
        """Return whether the last two runs failed in the same way and neither trained a batch.

        Args:
            code: exit code of the run that has just failed, negative for a signal.
            error: the reason of its failure.
        """
        silently = self._is_silent and time.monotonic() - self._began > _SILENT_TRAINING
        trained = silently or self._traces() != self._before
        self.has_trained = self.has_trained or trained
        before, self._cause = self._cause, "" if trained else repeatable_cause(code, error)
        return bool(self._cause) and self._cause == before

    def _traces(self) -> tuple[Any, ...]:
        """Return the values in the tracking store that training changes."""
        trial = self._store.trial(self._trial_id)
        checkpoints = len(self._store.checkpoints(trial_id=self._trial_id))
        return trial.steps_completed, trial.progress, trial.runner_state == TRAINING_STATE, checkpoints


def repeatable_cause(code: int, error: str) -> str:
    """Return the error without the parts that differ between runs, or "" if the next start may succeed.

    Args:
        code: exit code of the run, negative for a signal.
        error: the reason of its failure.
    """
    is_passing = not 0 < code < _SIGNALED or _TRANSIENT.search(error)
    return "" if is_passing else _VARIES.sub("", error)
