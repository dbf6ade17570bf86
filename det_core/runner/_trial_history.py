"""History of the runs of a trial."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import NamedTuple

from det_core import disk_errors
from det_core.core.failure_notes import PLACE, without_varying_parts
from det_core.interfaces.records import TRAINING_STATE, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._elastic_slots import ElasticSlots
from det_core.runner._restart_policy import FAILURES, MAX_DELAY, Count, End
from det_core.tracking._rows import RUNNER_ENDED

_TRANSIENT = re.compile(
    r"PeerLost|RankFailed|CommError|StorageError|TrackingError|StoreBusy|StaleRun|connection|broken pipe|timed? ?out|"
    r"network is|no route to host|name resolution|name or service|urlopen|HTTPError|NCCL|gloo|temporar|unavailable|"
    r"out of memory|MemoryError|cannot allocate|unable to allocate|too many open files|the process died",
    re.IGNORECASE,
)
"""Errors whose cause may be gone at the next start."""
_SIGNALED = 128
"""Lowest exit code of a shell whose command was killed by a signal."""
_SILENT_TRAINING = 60.0
"""Seconds after which a command that reports nothing may have trained."""


class _Traces(NamedTuple):
    """Values in the tracking store that training changes."""

    steps: int
    progress: float
    is_training: bool
    checkpoints: frozenset[str]


class TrialHistory:
    """Runs of one trial since its runner has started to train it.

    Args:
        store: the tracking store of the trial.
        trial_id: the trial.
        lease: the holder of the experiment's lease.
        is_silent: whether the trial may train without reporting it.
        slots: number of slots of its launches.
    """

    run: Run
    """Newest run."""

    def __init__(
        self, store: TrackingStore, trial_id: int, *, lease: str, is_silent: bool, slots: ElasticSlots
    ) -> None:
        self.slots = slots
        self.counts: defaultdict[Count, float] = defaultdict(float)
        """Numbers that decisions on the trial depend on."""
        self.has_trained = False
        """Whether one of the runs may have trained a batch."""
        self._store = store
        self._trial_id = trial_id
        self._lease = lease
        self._is_silent = is_silent
        self._failure: tuple[str, str | None] | None = None
        """Repeatable cause of the last failure and checkpoint of its run, unless a run has trained to another batch."""
        self._first: dict[Count, float] = {}
        """Times of the first of several in a row."""
        self._most_steps = 0
        self._checkpoints: frozenset[str] = frozenset()
        """All checkpoints that runs have started with or saved."""

    def start_run(self, run: Run, checkpoint: str | None) -> None:
        """Record that a run starts.

        Args:
            run: the run.
            checkpoint: uuid of the checkpoint that it starts from, or None.
        """
        self.run = run
        self._start = checkpoint
        self.counts[Count.LAUNCH_ATTEMPTS] = 0
        self._began = time.monotonic()
        self._before = self._traces()
        self._is_new(self._before)

    def count_attempt(self) -> None:
        """Count a failed attempt to launch the run."""
        self._count_in_a_row(Count.LAUNCH_ATTEMPTS, Count.LAUNCH_SECONDS)

    def end_run(self) -> None:
        """Record what the run has achieved."""
        traces, seconds = self._traces(), time.monotonic() - self._began
        silently = self._is_silent and seconds > _SILENT_TRAINING
        self._trained = silently or traces != self._before
        self._progressed = self._is_new(traces) or silently
        if self._trained:
            self.has_trained = True
            if self._failure and not PLACE.search(self._failure[0]):
                self._failure = None
        if self._progressed:
            self.counts[Count.IDLE_INTERRUPTIONS] = 0
            self.counts[Count.DISK_ERRORS] = 0
        if seconds > MAX_DELAY:
            self.counts[Count.SHORT_RUNS] = 0

    def failed_again(self, code: int, error: str) -> bool:
        """Return whether the run failed in the same way as the last one that started where it did.

        The reason names the batch. Otherwise neither may have trained.

        Args:
            code: exit code of the run, negative for a signal.
            error: the reason of its failure.
        """
        cause = "" if self._trained and not PLACE.search(error) else repeatable_cause(code, error)
        before = self._failure
        if cause:
            self._failure = (cause, self._start)
        return bool(cause) and self._failure == before

    @property
    def known_failure(self) -> str:
        """Repeatable cause of the last failure of a run that started where this run does, or "" if there is none."""
        return self._failure[0] if self._failure and self._failure[1] == self._start else ""

    def count(self, end: End) -> None:
        """Count an end of the trial, also in the tracking store."""
        if end in FAILURES:
            self.counts[Count.FAILURES] = self._store.count_restart(self._trial_id, lease=self._lease)
        if end is End.INTERRUPTED:
            self.counts[Count.INTERRUPTIONS] = self._store.count_interruption(self._trial_id, lease=self._lease)
        if end is End.NO_DISK:
            self._count_in_a_row(Count.DISK_ERRORS, Count.DISK_SECONDS)
        if end in (End.INTERRUPTED, End.NO_STORE):
            self.counts[Count.SHORT_RUNS] += 1
        if end in (End.INTERRUPTED, End.NO_STORE, End.YIELDED) and not self._progressed:
            self.counts[Count.IDLE_INTERRUPTIONS] += 1

    def _count_in_a_row(self, number: Count, seconds: Count) -> None:
        """Count one more, and set the seconds since the first one."""
        now = time.monotonic()
        if not self.counts[number]:
            self._first[number] = now
        self.counts[number] += 1
        self.counts[seconds] = now - self._first[number]

    def _is_new(self, traces: _Traces) -> bool:
        """Return whether there is a batch or a checkpoint that no run had before, and remember it."""
        is_new = traces.steps > self._most_steps or not traces.checkpoints <= self._checkpoints
        self._most_steps = max(self._most_steps, traces.steps)
        self._checkpoints |= traces.checkpoints
        return is_new

    def _traces(self) -> _Traces:
        trial = self._store.trial(self._trial_id)
        checkpoints = self._store.checkpoints(trial_id=self._trial_id)
        return _Traces(
            trial.steps_completed,
            trial.progress,
            trial.runner_state == TRAINING_STATE,
            frozenset(one.uuid for one in checkpoints),
        )


def repeatable_cause(code: int, error: str) -> str:
    """Return the error without the parts that differ between runs, or "" if the next start may succeed.

    Args:
        code: exit code of the run, negative for a signal.
        error: the reason of its failure.
    """
    message = PLACE.sub("", error)
    is_passing = not 0 < code < _SIGNALED or _TRANSIENT.search(message) or disk_errors.MENTIONED.search(message)
    return "" if is_passing else without_varying_parts(error)


def newest_run(store: TrackingStore, trial: TrialRecord) -> Run | None:
    """Return the newest run of a trial, or None if it has none."""
    return next(iter(store.runs(trial.id)[-1:]), None)


def find_orphaned_run(store: TrackingStore, trial: TrialRecord) -> Run | None:
    """Return the newest run of a trial if no runner has seen its end, or None."""
    run = newest_run(store, trial)
    is_orphaned = run is not None and (run.end_time is None or run.end_reason == RUNNER_ENDED)
    return run if is_orphaned else None
