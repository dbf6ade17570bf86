"""Main loop of the runner, which connects a search with its trials."""

from __future__ import annotations

import time
from collections.abc import Callable

from det_core.interfaces.records import ENDINGS, REQUESTS, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._failed_launches import FailedLaunches
from det_core.runner._recorded_search import CLOSING, RecordedSearch, TrialReport
from det_core.runner._restart_policy import LIMITS, End, TrainingOutcome, decide, has_stalled
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_history import repeatable_cause
from det_core.runner._trial_pool import TrialPool
from det_core.runner._trial_runner import TrainingResult
from det_core.search.method_selection import normalize_searcher_metric

_TICK = 0.2
_POLL_SECONDS = 1.0
"""Seconds between two polls of the progress and the requests in the tracking store."""

_EXITS = {
    TrainingOutcome.FAILED: State.ERROR,
    TrainingOutcome.STOPPED: State.COMPLETED,
    TrainingOutcome.INVALID_HP: State.COMPLETED,
}
"""State of a trial that ended by itself, by outcome."""


class SearchLoop:
    """Loop that trains the trials of a search and reports their results to it.

    Args:
        store: the tracking store.
        experiment_id: the experiment of the search.
        search: the search, which has begun.
        trials: the pool that trains its trials.
        requests: requests to pause or end the experiment.
        launches: the failed launches of the search.
        smaller_is_better: whether the search minimizes its metric.
        lease: the holder of the experiment's lease.
        ended: function called with the record of each trial that has ended outside of the search.
    """

    def __init__(
        self,
        store: TrackingStore,
        experiment_id: int,
        search: RecordedSearch,
        trials: TrialPool,
        requests: StopRequests,
        launches: FailedLaunches,
        *,
        smaller_is_better: bool,
        lease: str,
        ended: Callable[[TrialRecord], None] = lambda _: None,
    ) -> None:
        self.error: str | None = None
        """Error of the first trial that failed."""
        self.errors: dict[int, str] = {}
        """Errors of the trials that failed, by trial id."""
        self._store = store
        self._experiment_id = experiment_id
        self._search = search
        self._trials = trials
        self._requests = requests
        self._launches = launches
        self._smaller_is_better = smaller_is_better
        self._lease = lease
        self._ended = ended
        self._poll_at = 0.0
        self._untrained: list[str] = []
        """Errors of the trials that failed before they trained a batch."""
        self._others_ended = False
        self._pauses: dict[int, str] = {}
        """Reasons why trials are PAUSED, by trial id."""
        self._start_at = 0.0
        """Time of the next start of a trial, after launches that failed in a row."""

    def run(self, tick: Callable[[], None]) -> None:
        """Train until no trial is left, the search is hopeless, or a stop is requested.

        Args:
            tick: function called about five times per second. An exception that it raises ends the loop.
        """
        search, trials, requests = self._search, self._trials, self._requests
        while trials or (search.queue and not requests.current and not self.blocked):
            self._poll()
            while search.queue and not (trials.full or requests.current or self.blocked or self._delays):
                trial = search.queue.popleft()
                self._pauses.pop(trial.id, None)
                trials.start(trial)
            self._settle(trials.wait(_TICK))
            requests.poll()
            tick()
        if self.hopeless or (requests.current and REQUESTS[requests.current] is State.CANCELED):
            search.cancel()

    @property
    def hopeless(self) -> str | None:
        """Reason why no more trials are started.

        It is set when two or more trials have failed in the same way and no trial has trained a batch.
        """
        causes = {repeatable_cause(1, error) for error in self._untrained}
        if len(self._untrained) < 2 or len(causes) > 1 or "" in causes or self._others_ended:
            return None
        if any(trial.steps_completed for trial in self._store.trials(self._experiment_id)):
            return None
        return (
            f"{self._untrained[0]} ({len(self._untrained)} trials failed like this before training, and none trained)"
        )

    @property
    def postponed(self) -> str | None:
        """Reason why a trial waits for the experiment to be resumed."""
        return next(iter(self._pauses.values()), None)

    @property
    def blocked(self) -> bool:
        """Whether no more trials are started, because the search is hopeless or nothing can be launched."""
        waiting = {trial.id for trial in self._search.queue}
        stalled = has_stalled(training=len(self._trials), waiting=waiting, failed=self._launches.trials)
        return stalled or self.hopeless is not None

    @property
    def _delays(self) -> bool:
        """Whether trials are started later, because launches have failed in a row."""
        return bool(self._launches.trials) and time.monotonic() < self._start_at

    def _settle(self, ended: list[tuple[TrialRecord, TrainingResult]]) -> None:
        self._search.report_validations(trial for trial, _ in ended)
        reports = []
        for trial, result in ended:
            end = self._judge(trial, result)
            self._note_failure(trial, end)
            if report := self._settle_one(trial, end):
                reports.append(report)
        self._report_results(reports)

    def _note_failure(self, trial: TrialRecord, end: TrainingResult) -> None:
        if end.outcome is TrainingOutcome.FAILED:
            self.error = self.error or end.error
            self.errors[trial.id] = end.error or ""
        if end.outcome is TrainingOutcome.FAILED and end.error and not end.trained:
            self._untrained.append(end.error)
        elif end.outcome is not TrainingOutcome.POSTPONED:
            self._others_ended = True

    def _settle_one(self, trial: TrialRecord, end: TrainingResult) -> TrialReport | None:
        """Return a report to the search, or record that the trial waits."""
        if self._search.is_closing(trial) and end.outcome is not TrainingOutcome.FAILED:
            return _ended_report(trial, CLOSING)
        if end.outcome is TrainingOutcome.COMPLETED:
            metric = normalize_searcher_metric(end.metric, smaller_is_better=self._smaller_is_better)
            return TrialReport(trial, ("on_validation", trial.searcher_length, metric), State.PAUSED)
        if end.outcome in _EXITS:
            return TrialReport(trial, ("on_exit", end.outcome.value), _EXITS[end.outcome])
        if trial.id in self._trials.asked:
            return _ended_report(trial)
        if self._requests.current:
            self._store.set_trial_state(trial.id, REQUESTS[self._requests.current], lease=self._lease)
            if (after := self._store.trial(trial.id)).state.final:
                self._ended(after)
            return None
        if end.outcome is TrainingOutcome.INTERRUPTED:  # its end was requested after the last poll
            return _ended_report(trial)
        self._pauses[trial.id] = end.error or ""
        self._store.set_trial_state(trial.id, State.PAUSED, lease=self._lease)
        if end.outcome is TrainingOutcome.POSTPONED:
            self._search.queue.append(trial)
        return None

    def _judge(self, trial: TrialRecord, end: TrainingResult) -> TrainingResult:
        """Return the result of a trial, which fails if it was postponed too often."""
        requested = self._requests.current or trial.id in self._trials.asked
        if requested or end.outcome is not TrainingOutcome.POSTPONED:
            return end
        decision = decide(End.POSTPONED, self._launches.add_failure(trial.id), LIMITS)
        self._start_at = time.monotonic() + decision.delay
        if decision.outcome is None:
            return end
        return TrainingResult(decision.outcome, error=f"{end.error}; {decision.reason}", trained=end.trained)

    def _report_results(self, reports: list[TrialReport]) -> None:
        if reports:
            self._search.report(reports)

    def _poll(self) -> None:
        """Record the progress, and look for requests to end single trials."""
        if time.monotonic() < self._poll_at:
            return
        self._poll_at = time.monotonic() + _POLL_SECONDS
        progress = self._search.progress(self._store.trials(self._experiment_id, ordered=True))
        self._store.set_experiment_progress(self._experiment_id, progress, lease=self._lease)
        if asked := self._store.trials(self._experiment_id, states=ENDINGS):
            self._trials.asked |= {trial.id: trial.state for trial in asked}
            self._search.dequeue(self._trials.asked)
            for trial in asked:
                self._pauses.pop(trial.id, None)
            self._report_results([_ended_report(trial, trial.state) for trial in asked if trial not in self._trials])
        self._search.report_validations(self._trials.training)


def _ended_report(trial: TrialRecord, request: State = State.STOPPING_KILLED) -> TrialReport:
    """Return the report of a trial that was requested to end by its search or by a user."""
    if request is CLOSING:
        return TrialReport(trial, ("on_exit", TrainingOutcome.STOPPED.value), State.COMPLETED)
    return TrialReport(trial, ("on_exit", TrainingOutcome.FAILED.value), State.CANCELED)
