"""What is new about an experiment since the last look."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from det_core.interfaces.tracking import Experiment, LogLine, MetricsReport, TrackingStore, Trial
from det_core.tracking.control import POLL_SECONDS, settled

GROUPS = ("training", "validation")
"""The metrics that are shown; others, such as those of the profiler, are in ``trial describe --metrics``."""

News = LogLine | MetricsReport


@dataclass
class _Cursor:
    run_id: int = 0
    log: int = 0
    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, -1))


class Watcher:
    """Remembers what was seen of each trial."""

    def __init__(self, store: TrackingStore, experiment_id: int) -> None:
        self.store = store
        self.experiment: Experiment = store.experiment(experiment_id)
        self.trials: list[Trial] = []
        self.total = configured_batches(self.experiment)
        """How many batches there will be; None while unknown."""
        self._estimates = self.total is None
        self._estimate = 0
        self._cursors: dict[int, _Cursor] = {}

    def poll(self) -> list[News]:
        """Log lines and metrics that were not returned before, in the order in which they happened."""
        before = self._progress
        self.experiment = self.store.experiment(self.experiment.id)
        self.trials = self.store.trials(self.experiment.id)
        if self._estimates and self._progress not in (0, before):
            # Steps are recorded before the progress that they make, and estimates in between are too high, each by
            # another number.
            estimate = round(self.steps / self._progress)
            if estimate == self._estimate:
                self.total = estimate
            self._estimate = estimate
        news = [one for trial in self.trials for one in self._news(trial)]
        return sorted(news, key=lambda one: one.time or self.experiment.start_time)

    @property
    def steps(self) -> int:
        """Batches trained, over all trials."""
        return sum(trial.steps_completed for trial in self.trials)

    @property
    def _progress(self) -> float:
        """The trial's own: the experiment's follows it only after a while."""
        return sum(trial.progress for trial in self.trials)

    def _news(self, trial: Trial) -> Iterator[News]:
        cursor = self._cursors.setdefault(trial.id, _Cursor())
        if trial.run_id != cursor.run_id:  # a new run starts from a checkpoint, so steps are reported again
            cursor.run_id = trial.run_id
            cursor.steps = {group: min(step, trial.steps_completed) for group, step in cursor.steps.items()}
        for line in self.store.logs(trial.id, after=cursor.log):
            cursor.log = line.id
            yield line
        for group in GROUPS:
            for report in self.store.metrics(trial.id, group=group, after=cursor.steps[group]):
                cursor.steps[group] = report.steps_completed
                yield report


class Pace:
    """Batches, or anything else, per second over the latest reports."""

    def __init__(self, samples: int = 10, clock: Callable[[], float] = time.monotonic) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=samples)
        self._clock = clock
        self._steps: float | None = None

    def update(self, steps: float) -> None:
        """Note how many are done by now."""
        before, self._steps = self._steps, steps
        if before is None or steps < before:  # the time until the first report, or since a restart, is not all training
            self._samples.clear()
        elif steps > before:
            self._samples.append((self._clock(), steps))

    @property
    def rate(self) -> float | None:
        """None until there is something to compare."""
        if len(self._samples) < 2:
            return None
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else None


def configured_batches(experiment: Experiment) -> int | None:
    """How many batches the config asks for; None if it counts otherwise, or in several trials."""
    searcher = experiment.config.get("searcher") or {}
    length = searcher.get("max_length")
    return length.get("batches") if searcher.get("name") == "single" and isinstance(length, dict) else None


def follow(store: TrackingStore, experiment_id: int, tick: Callable[[], None]) -> Experiment:
    """Call ``tick`` until the experiment is over, or nobody runs it; the experiment as it is then."""
    while True:
        experiment = settled(store, experiment_id)
        tick()
        if experiment:
            return experiment
        time.sleep(POLL_SECONDS)
