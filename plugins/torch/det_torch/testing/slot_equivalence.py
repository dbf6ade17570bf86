"""Tests that several slots train the same as one slot."""

from __future__ import annotations

import pytest
import torch
from det_testing.comparison import bitwise_form
from det_testing.trial_job import BATCHES, REPORTS

from det_torch.testing._suite import AdapterSuite
from det_torch.testing.jobs import ADVERSARIES, ONE_MODEL, Jobs

EACH_TRIAL = pytest.mark.parametrize("trial", [ONE_MODEL, ADVERSARIES])
"""Mark that runs a test with each of the two trials."""


class SlotEquivalenceSuite(AdapterSuite):
    """Tests of equal weights, losses and metrics between numbers of slots, and on all slots."""

    @pytest.mark.integration
    @EACH_TRIAL
    def test_two_slots_train_what_one_does(self, jobs: Jobs, trial: str) -> None:
        """Train with the mean of gradients over slots and aggregated batches, from the chief's initial weights."""
        two, one = (jobs.undisturbed(trial, slots) for slots in (2, 1))
        self.assert_close(two.ended(), one)
        assert len(one.losses()) == BATCHES

    @pytest.mark.integration
    @pytest.mark.slow
    def test_four_slots_train_what_one_does(self, jobs: Jobs) -> None:
        four, one = (jobs.undisturbed(ONE_MODEL, slots) for slots in (4, 1))
        self.assert_close(four.ended(), one)

    @pytest.mark.integration
    @pytest.mark.slow
    @EACH_TRIAL
    def test_a_rehearsal_changes_nothing(self, jobs: Jobs, trial: str) -> None:
        """Evaluate a batch on each slot before the first batch, and train as without it."""
        config = {"perform_initial_validation": False}
        two = [jobs.make(trial, **config, rehearsal=on).start(2) for on in (True, False)]
        self.assert_same(*(job.ended() for job in two))
        assert "the rehearsal" not in two[0].output(), "a warning"

    @pytest.mark.integration
    @pytest.mark.slow
    def test_a_rehearsal_ends_all_slots(self, jobs: Jobs) -> None:
        """End before the first batch if the searcher's metric does not exist."""
        searcher = {"name": "single", "metric": "validation_los", "max_length": {"batches": BATCHES}}
        config = {"perform_initial_validation": False, "checkpoint_policy": "best", "searcher": searcher}
        job = jobs.make(ONE_MODEL, **config).start(2)
        with pytest.raises(AssertionError, match="did you mean 'validation_loss'"):
            job.ended()
        assert not job.steps_of_reports()

    @pytest.mark.integration
    @EACH_TRIAL
    def test_validation_is_of_all_data_once(self, jobs: Jobs, trial: str) -> None:
        """Validate each record once. The metrics before training are bitwise equal for one and two slots."""
        two, one = (jobs.undisturbed(trial, slots).ended().metrics("validation") for slots in (2, 1))
        assert bitwise_form(one[0]) == bitwise_form(two[0])
        assert [steps for steps, *_ in two] == [0, 7, BATCHES]
        for (_, expected, _), (_, metrics, _) in zip(one, two, strict=True):
            assert metrics["seen"] == 11
            for name in expected.keys() - {"lowest_buffer", "highest_buffer"}:
                torch.testing.assert_close(metrics[name], expected[name], atol=self.tolerance, rtol=self.tolerance)

    @pytest.mark.integration
    def test_all_slots_validate_the_chiefs_model(self, jobs: Jobs) -> None:
        """Use the chief's weights and buffers in the validation on every slot."""
        for _, metrics, _ in jobs.undisturbed(ONE_MODEL, 2).ended().metrics("validation"):
            for name in ("prediction", "buffer"):
                assert metrics[f"lowest_{name}"] == metrics[f"highest_{name}"]

    @pytest.mark.integration
    @EACH_TRIAL
    def test_metrics_are_of_all_slots(self, jobs: Jobs, trial: str) -> None:
        """Give reducers all records, average numbers over slots, and take other values from the chief."""
        steps, metrics, rows = jobs.undisturbed(trial, 2).ended().metrics("training")[0]
        assert (steps, metrics["seen"]) == (3, 3 * 8)
        assert [row["rank"] for row in rows] == [0.5] * 3
        assert [row["at"]["max"] for row in rows] == [0, 1, 2]  # of an epoch and a batch

    @pytest.mark.integration
    def test_the_chief_alone_reports_and_all_know_of_checkpoints(self, jobs: Jobs) -> None:
        job = jobs.undisturbed(ONE_MODEL, 2).ended()
        assert job.steps_of_reports() == REPORTS
        for row in job.checkpoints():
            assert all(f"rank {rank} knows of {row.uuid}" in job.output() for rank in range(2))

    @pytest.mark.integration
    @pytest.mark.slow
    def test_gradients_travel_as_float16(self, jobs: Jobs) -> None:
        """Exchange compressed gradients with a measurable but small loss of precision."""
        if not self.compresses:
            pytest.skip("compresses is False")
        job = jobs.make(ONE_MODEL, optimizations={"gradient_compression": True}).start(2).ended()
        with pytest.raises(AssertionError):
            self.assert_close(job, jobs.undisturbed(ONE_MODEL, 2).ended())
        self.assert_close(job, jobs.undisturbed(ONE_MODEL, 1), tolerance=1e-2)
