"""Watcher that polls an experiment for news of its trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from det_core.interfaces.records import ExperimentRecord, LogLine, MetricsReport, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.control import POLL_SECONDS, settled_experiment

GROUPS = ("training", "validation")
"""Groups of metrics that are shown. ``det trial describe --metrics`` shows all, such as those of the profiler."""

_LINES_AT_ONCE = 1000

News = LogLine | MetricsReport


@dataclass
class _Cursor:
    run_id: int = 0
    log: int = 0
    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, -1))


class TrialWatcher:
    """Watcher of an experiment that returns each log line and report once.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
    """

    def __init__(self, store: TrackingStore, experiment_id: int) -> None:
        self.store = store
        self.experiment: ExperimentRecord = store.experiment(experiment_id)
        self.trials: list[TrialRecord] = []
        self.total = configured_batches(self.experiment)
        """Total number of batches to train, or None while it is unknown."""
        self._estimates = self.total is None
        self._estimate = 0
        self._cursors: dict[int, _Cursor] = {}

    def poll(self) -> list[News]:
        """Return the log lines and metrics reports since the last call, sorted by time."""
        before = self._progress
        self.experiment = self.store.experiment(self.experiment.id)
        self.trials = self.store.trials(self.experiment.id)
        if self.trials and all(trial.total_batches for trial in self.trials):
            self.total = sum(trial.total_batches or 0 for trial in self.trials)
        elif self._estimates and self._progress not in (0, before):
            # Steps are recorded before their progress. Estimates in between are too high and differ from each other,
            # so only an estimate that repeats is used.
            estimate = round(self.steps / self._progress)
            if estimate == self._estimate:
                self.total = estimate
            self._estimate = estimate
        news = [one for trial in self.trials for one in self._news(trial)]
        return sorted(news, key=lambda one: one.time or self.experiment.start_time)

    @property
    def steps(self) -> int:
        """Number of batches trained, over all trials."""
        return sum(trial.steps_completed for trial in self.trials)

    @property
    def _progress(self) -> float:
        """Sum of the trials' progress, because the progress of the experiment is updated with a delay."""
        return sum(trial.progress for trial in self.trials)

    def _news(self, trial: TrialRecord) -> Iterator[News]:
        cursor = self._cursors.setdefault(trial.id, _Cursor())
        if trial.run_id != cursor.run_id:  # a new run starts from a checkpoint, so steps are reported again
            cursor.run_id = trial.run_id
            cursor.steps = {group: min(step, trial.steps_completed) for group, step in cursor.steps.items()}
        while lines := self.store.logs(trial.id, after=cursor.log, limit=_LINES_AT_ONCE):
            for line in lines:
                cursor.log = line.id
                yield line
        for group in GROUPS:
            for report in self.store.metrics(trial.id, group=group, after=cursor.steps[group]):
                cursor.steps[group] = report.steps_completed
                yield report


def configured_batches(experiment: ExperimentRecord) -> int | None:
    """Return the configured number of batches, or None for other units and for searches with several trials."""
    searcher = experiment.config.get("searcher") or {}
    length = searcher.get("max_length")
    return length.get("batches") if searcher.get("name") == "single" and isinstance(length, dict) else None


def follow_experiment(store: TrackingStore, experiment_id: int, tick: Callable[[], None]) -> ExperimentRecord:
    """Call ``tick`` until the experiment has ended or has no runner, and return the experiment."""
    while True:
        experiment = settled_experiment(store, experiment_id)
        tick()
        if experiment:
            return experiment
        time.sleep(POLL_SECONDS)
