"""The adapter under test, as all parts of its suite see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from det_core.testing._exact import exact
from det_core.testing._suite import Suite
from det_torch import _reading
from det_torch.testing._job import Job
from det_torch.testing._jobs import Jobs, jobs_of


class AdapterSuite(Suite):
    """What a subclass says about its adapter."""

    backend: ClassVar[str] = ""
    """The name in ``distributed: {backend: ...}``; it must be installed."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Those of the ``distributed`` block."""
    tolerance: ClassVar[float] = 1e-6
    """How far weights and losses may be from those of one slot, absolutely and relatively."""
    exact: ClassVar[bool] = True
    """Whether two runs on the same slots come to the same bits; else they are compared within ``tolerance``."""
    compresses: ClassVar[bool] = True
    """Whether ``optimizations.gradient_compression`` makes gradients travel as float16."""
    clips: ClassVar[bool] = True
    """Whether gradients can be clipped."""
    resizes: ClassVar[bool] = True
    """Whether a checkpoint continues on another number of slots."""
    full_weights: ClassVar[bool] = True
    """Whether every slot has whole models, so that one alone can evaluate: ``evaluate_full_dataset``."""
    hosts: ClassVar[bool] = True
    """Whether a trial may have slots on several hosts."""
    limit: ClassVar[float] = 120.0
    """Seconds that a run of a trial may take, its start included."""

    def weights(self, path: Path) -> Any:
        """The weights that a checkpoint's directory holds, as nested lists and dicts of tensors."""
        return _reading.read(path)["models_state_dict"]

    @pytest.fixture(scope="class")
    @classmethod
    def jobs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
        assert cls.backend, f"{cls.__name__} must say backend = 'the name of the backend'"
        with jobs_of(cls(), tmp_path_factory.mktemp("jobs")) as jobs:
            yield jobs

    def assert_close(self, one: Job, other: Job, tolerance: float | None = None) -> None:
        """Parameters, and the losses of all batches."""
        within = self.tolerance if tolerance is None else tolerance
        for told in (Job.parameters, Job.losses):
            torch.testing.assert_close(told(one), told(other), atol=within, rtol=within)

    def assert_same(self, one: Job, other: Job) -> None:
        """Everything, to the last bit; of an adapter that is not ``exact`` what does not depend on weights."""
        if self.exact:
            for (name, mine), theirs in zip(one.outcome().items(), other.outcome().values(), strict=True):
                assert exact(mine) == exact(theirs), f"{name} differ"
        else:
            self.assert_close(one, other)
            assert one.steps_of_reports() == other.steps_of_reports()
            assert one.own() == other.own()
