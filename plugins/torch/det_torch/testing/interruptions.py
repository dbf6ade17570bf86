"""Tests of slots that fail, are killed, are asked to stop, or get stuck."""

from __future__ import annotations

import pytest
from det_testing.trial_job import BATCHES, InjectedFailure

from det_torch.testing._suite import AdapterSuite
from det_torch.testing.jobs import ADVERSARIES, ONE_MODEL, Jobs


class InterruptionSuite(AdapterSuite):
    """Tests that all slots end together, and that training resumes as if it had not been interrupted."""

    @pytest.mark.integration
    @pytest.mark.slow
    def test_failed_and_resumed_is_as_if_undisturbed(self, jobs: Jobs) -> None:
        """Restore weights, momenta, gradients during aggregation, and each slot's random numbers and callbacks."""
        job, undisturbed = jobs.make(ADVERSARIES), jobs.undisturbed(ADVERSARIES, 2)
        for failure in (InjectedFailure("raise", 1, 5), InjectedFailure("kill", 0, 8), InjectedFailure("leave", 1, 10)):
            assert (job.run(2, failure) == 0) == (failure.how == "leave"), job.output()
            assert 0 < job.steps() < BATCHES
        assert "ArithmeticError: rank 1 fails on purpose" in job.output()
        self.assert_same(job.start(2).ended(), undisturbed.ended())

    @pytest.mark.integration
    def test_a_stop_that_one_slot_requests_stops_all(self, jobs: Jobs) -> None:
        """Stop on two slots in the middle of a training on one slot, if the adapter supports such a change."""
        job = jobs.make(ONE_MODEL)
        if self.resizes:
            job.train_here(InjectedFailure("leave", 0, 4))
        job.start(2, InjectedFailure("stop", 1, 9)).ended()
        assert job.steps() == 12
        assert "the trial asked to stop after 12 batches" in job.output()
        if self.resizes:
            job.train_here()
            assert job.steps() == BATCHES
            self.assert_close(job, jobs.undisturbed(ONE_MODEL, 1))

    @pytest.mark.integration
    def test_a_stuck_slot_is_named(self, jobs: Jobs) -> None:
        """Name the stuck rank after ``distributed.timeout``. All processes of the job end within 10 s after it."""
        job = jobs.make(ONE_MODEL, distributed={"backend": self.backend, **self.options, "timeout": 3})
        assert job.run(2, InjectedFailure("freeze", 1, 5)) != 0, job.output()
        *_, verdict = job.output().splitlines()
        assert verdict.startswith("det: the workers failed: rank 0: PeerLate: rank 1 "), job.output()
        assert "distributed.timeout" in verdict
