"""Tests of runs that end before training is done, by a request to stop or an error."""

from __future__ import annotations

import re
import threading
import time
from contextlib import nullcontext

import pytest

from det_core.core import EarlyExitReason
from det_testing.framework._framework_suite import FrameworkSuite, UndisturbedTraining
from det_testing.framework._incidents import Incident, InjectedError
from det_testing.framework.trial_harness import REPORT_PERIOD, TrialHarness

_STOP_BATCH = 5
"""A batch between two reports."""
_STOP_SECONDS = 10.0
"""Time in seconds within which threads must end."""
ENDS: dict[str, list[Incident]] = {
    "done": [],
    "asked to leave": [("training", _STOP_BATCH, "leave")],
    "failed": [("training", _STOP_BATCH, "fail")],
}


class FrameworkStopTests(FrameworkSuite):
    """Tests that a run stops promptly, saves its state, and raises the original error."""

    def test_leaves_after_the_batch(self, harness: TrialHarness) -> None:
        """A machine may be reclaimed on short notice, and the next report may be hours away."""
        trial_id = harness.prepare(scheduling_unit=100)
        harness.train(trial_id, ("training", _STOP_BATCH, "leave"))
        assert harness.counts["training"] == _STOP_BATCH + 1
        assert harness.checkpoints(trial_id)[-1].steps_completed == _STOP_BATCH + 1

    def test_leaves_between_two_batches_of_a_validation(self, harness: TrialHarness) -> None:
        """A validation may take long, too. An incomplete validation must not be reported."""
        trial_id = harness.prepare(min_validation_period={"batches": 4})
        harness.train(trial_id, ("validation", 0, "leave"))
        assert harness.counts["validation"] == 1
        assert list(harness.store.metrics(trial_id, group="validation")) == []
        assert harness.checkpoints(trial_id)[-1].steps_completed == 4

    def test_a_validation_cut_short_does_not_change_training(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining
    ) -> None:
        """A validation that is cut short must also restore what it changed, because a checkpoint follows."""
        trial_id = harness.prepare(min_validation_period={"batches": 4})
        harness.train(trial_id, ("validation", 0, "leave"))
        harness.train(trial_id)
        outcome = harness.outcome(trial_id)
        assert (outcome.rows, outcome.weights) == (undisturbed.outcome.rows, undisturbed.outcome.weights)

    @pytest.mark.parametrize("preempted", [False, True], ids=["at once", "preempted"])
    def test_a_stop_request_finishes_the_step(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining, preempted: bool
    ) -> None:
        """Metrics up to the stop equal those of an unstopped trial, even if it is preempted before the step ends."""
        trial_id = harness.prepare()
        incidents: list[Incident] = [
            ("training", _STOP_BATCH, lambda: harness.recorder.context.set_stop_requested(True))
        ]
        if preempted:
            harness.train(trial_id, *incidents, ("training", _STOP_BATCH, "leave"))
            assert harness.checkpoints(trial_id)[-1].steps_completed == _STOP_BATCH + 1
            incidents = []
        harness.train(trial_id, *incidents)
        outcome, length = harness.outcome(trial_id), 2 * REPORT_PERIOD
        assert outcome.rows == undisturbed.outcome.rows[:length]
        assert outcome.reports == [report for report in undisturbed.outcome.reports if report[1] <= length]
        assert harness.checkpoints(trial_id)[-1].steps_completed == length
        early_exit = harness.store.run(trial_id, 1 + preempted).early_exit
        assert early_exit == EarlyExitReason.USER_REQUESTED_STOP.value

    @pytest.mark.parametrize("point", ["training", "validation"])
    def test_errors_of_the_trial_are_raised(self, harness: TrialHarness, point: str) -> None:
        """A trial that fails is restarted or ends. One that continues in spite of an error wastes the machine."""
        assert self._failure(harness, point)

    def test_errors_come_with_the_batch(self, harness: TrialHarness, caplog: pytest.LogCaptureFixture) -> None:
        """To find the cause, users need the number of the batch, which the trial's code may not know."""
        said = f"{self._failure(harness, 'training')} {caplog.text}"
        assert re.search(rf"\bbatch (number )?{_STOP_BATCH}\b", said), (
            f"expected 'batch {_STOP_BATCH}' in a log or the error"
        )

    @pytest.mark.parametrize("end", ENDS)
    def test_nothing_runs_on(self, harness: TrialHarness, end: str) -> None:
        """A remaining thread keeps the process alive, and with it the slots that the next trial needs."""
        trial_id = harness.prepare()
        before = set(threading.enumerate())  # with the one of the suite's tracking store
        with pytest.raises(Exception) if end == "failed" else nullcontext():  # noqa: PT011
            harness.train(trial_id, *ENDS[end])
        deadline = time.monotonic() + _STOP_SECONDS
        while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left
        assert harness.recorder.closed == 1

    def _failure(self, harness: TrialHarness, point: str) -> BaseException:
        """Return the error of a run whose code fails."""
        with pytest.raises(Exception) as caught:  # noqa: PT011  (a framework may wrap it in its own)
            harness.train(harness.prepare(), (point, _STOP_BATCH if point == "training" else 1, "fail"))
        error: BaseException | None = caught.value
        while error and not isinstance(error, InjectedError):
            error = error.__cause__ or error.__context__
        assert error, f"expected the trial's own error, or one raised from it; got {caught.value!r}"
        return caught.value
