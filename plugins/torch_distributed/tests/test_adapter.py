"""DistributedDataParallel passes the suite that every adapter has to pass, and resumes exactly on four slots too."""

from __future__ import annotations

import pytest
from det_torch.testing import AdapterCompliance
from det_torch.testing._jobs import ADVERSARIES, ONE_MODEL, Jobs

from det_core.testing._job import Failure


class TestReplicas(AdapterCompliance):
    backend = "torch_distributed"

    @pytest.mark.integration
    @pytest.mark.slow
    @pytest.mark.parametrize("trial", [ONE_MODEL, ADVERSARIES])
    def test_four_slots_resume_exactly(self, jobs: Jobs, trial: str) -> None:
        """The order in which a ring adds up an element depends on its place in a bucket, which must not change."""
        job, undisturbed = jobs.make(trial), jobs.undisturbed(trial, 4)
        assert job.run(4, Failure("kill", rank=1, batches=8)) != 0, job.output()
        assert job.steps() == 6
        self.assert_same(job.start(4).ended(), undisturbed.ended())
