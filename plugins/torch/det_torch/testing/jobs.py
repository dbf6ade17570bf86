"""Names of the suite's trials, and the type of the jobs that train them."""

from __future__ import annotations

from typing import TypeAlias

from det_testing import job_factory

from det_torch.testing._job import TorchJob

ONE_MODEL, ADVERSARIES = "one model", "adversaries"
"""Names of the two trials. det drives the first, and the second drives itself."""

Jobs: TypeAlias = job_factory.JobFactory[TorchJob]
"""Jobs of one test class."""
