"""Tests of a run without incidents."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from det_testing.framework._framework_suite import FrameworkSuite, UndisturbedTraining
from det_testing.framework._recording_adapter import RecordsWeights
from det_testing.framework.trial_harness import BATCHES, REPORT_PERIOD, SEED, TrialHarness


class FrameworkTrainingTests(FrameworkSuite):
    """Tests of the length of training, its metrics, and its dependence on the seed."""

    @pytest.mark.parametrize("unit", ["batches", "records", "epochs"])
    def test_trains_as_long_as_asked(self, harness: TrialHarness, undisturbed: UndisturbedTraining, unit: str) -> None:
        """Search methods compare trials of equal lengths. A trial that trained longer would win unfairly."""
        if unit == "epochs" and undisturbed.batches_per_epoch is None:
            pytest.skip("the data has no length")
        records = self.hyperparameters["global_batch_size"] if unit == "records" else 1
        length, expected = {
            "batches": (7, 7),
            "records": (7 * records + records - 1, 7),
            "epochs": (2, 2 * (undisturbed.batches_per_epoch or 0)),
        }[unit]
        trial_id = harness.prepare(length={unit: length})
        harness.train(trial_id)
        assert harness.counts["training"] == expected
        assert harness.checkpoints(trial_id)[-1].steps_completed == expected

    def test_every_batch_has_metrics(self, undisturbed: UndisturbedTraining) -> None:
        """The loop counts batches by their metrics, and averages over them."""
        assert undisturbed.batches == len(undisturbed.outcome.rows) == BATCHES

    def test_metrics_and_metadata_are_plain(self, undisturbed: UndisturbedTraining) -> None:
        """They are stored as JSON, also in checkpoints. A tensor among them would occupy memory of a device."""
        assert [value for value in undisturbed.recorder.values if not _is_plain(dict(value))] == []

    def test_reports_come_when_they_are_due(self, undisturbed: UndisturbedTraining) -> None:
        """If the steps of reports depended on the framework, curves of trials could not be compared."""
        steps = [step for _, step, _ in undisturbed.outcome.reports_of("training")]
        assert steps == [*range(REPORT_PERIOD, BATCHES, REPORT_PERIOD), BATCHES]

    def test_lengths_are_positive_and_constant(self, undisturbed: UndisturbedTraining) -> None:
        """All boundaries are computed from them at the start of each run."""
        assert len(undisturbed.recorder.lengths) == 1, undisturbed.recorder.lengths
        (lengths,) = undisturbed.recorder.lengths
        assert [length for length in lengths if length is not None and length < 1] == []

    def test_the_same_seed_trains_the_same(
        self, harness: TrialHarness, undisturbed: UndisturbedTraining, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise results could not be reproduced, and resuming could not be exact. The clock shows another day."""
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 86400)
        trial_id = harness.prepare()
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome

    def test_another_seed_trains_otherwise(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """Users compare seeds to tell luck from merit."""
        trial_id = harness.prepare(seed=SEED + 1)
        harness.train(trial_id, recorder=partial(RecordsWeights, harness.weights_of))
        assert harness.recorder.begun_with != undisturbed.recorder.begun_with, "the initial weights are the same"
        assert harness.outcome(trial_id).records != undisturbed.outcome.records, "the order of samples is the same"

    def test_each_epoch_has_an_order_of_its_own(self, undisturbed: UndisturbedTraining) -> None:
        """Training is worse if batches always consist of the same samples."""
        epoch = undisturbed.batches_per_epoch
        if epoch is None:
            pytest.skip("the data has no length")
        first, second = (undisturbed.outcome.records[start : start + epoch] for start in (0, epoch))
        assert [batch for number, batch in enumerate(first) if batch in first[:number]] == [], "a batch is repeated"
        assert first != second, "the order of samples is the same in each epoch"

    def test_validation_does_not_change_training(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """The number of validations must not affect the result."""
        trial_id = harness.prepare(min_validation_period={"batches": 1})
        harness.train(trial_id)
        outcome = harness.outcome(trial_id)
        assert len(outcome.reports_of("validation")) == BATCHES
        assert (outcome.rows, outcome.weights) == (undisturbed.outcome.rows, undisturbed.outcome.weights)
        last, expected = (found.reports_of("validation")[-1] for found in (outcome, undisturbed.outcome))
        assert last == expected, "a validation depends on the number of those before it"


def _is_plain(value: Any) -> bool:
    """Return whether a value is JSON-compatible, apart from NumPy arrays of numbers in it."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value).__module__ == "numpy":
        return type(value).__name__ == "ndarray" and value.dtype.kind in "bif"
    return value is None or type(value) in (bool, int, float, str)
