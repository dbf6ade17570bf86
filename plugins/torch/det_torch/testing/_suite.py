"""Description of the adapter under test, shared by all parts of the suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
from det_testing.comparison import bitwise_form
from det_testing.suite import ComplianceSuite

from det_core.plugins import plugin_registry
from det_core.specs import BackendSpec
from det_torch._checkpoints import _reader
from det_torch.testing._job import CODE, TorchJob
from det_torch.testing.jobs import ADVERSARIES, ONE_MODEL, Jobs


class AdapterSuite(ComplianceSuite):
    """Base of the tests, with the attributes by which a subclass describes its adapter."""

    backend: ClassVar[str] = ""
    """Name in ``distributed: {backend: ...}``. The backend must be installed."""
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the ``distributed`` block."""
    tolerance: ClassVar[float] = 1e-6
    """Maximum difference of weights and losses from those of one slot, absolute and relative."""
    exact: ClassVar[bool] = True
    """Whether two runs on the same number of slots are bitwise equal. Otherwise ``tolerance`` applies."""
    compresses: ClassVar[bool] = True
    """Whether ``optimizations.gradient_compression`` makes gradients travel as float16."""
    clips: ClassVar[bool] = True
    """Whether gradients can be clipped."""
    resizes: ClassVar[bool] = True
    """Whether a checkpoint can be continued on another number of slots."""
    full_weights: ClassVar[bool] = True
    """Whether every slot has whole models, so that one alone can evaluate with ``evaluate_full_dataset``."""
    hosts: ClassVar[bool] = True
    """Whether a trial may have slots on several hosts."""
    imports: ClassVar[Sequence[str]] = ()
    """Further modules that each worker imports, if that takes seconds. Their import must start no thread."""
    limit: ClassVar[float] = 120.0
    """Maximum duration of one run of a trial, in seconds, its start included."""

    def weights(self, path: Path) -> Any:
        """Return the weights in a checkpoint's directory, as nested lists and dicts of tensors."""
        return _reader.read_checkpoint(path)["models_state_dict"]

    @pytest.fixture(scope="class")
    @classmethod
    def jobs(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
        assert cls.backend, f"{cls.__name__} must set backend = 'name of the backend'"
        with _make_jobs(cls(), tmp_path_factory.mktemp("jobs")) as jobs:
            yield jobs

    def assert_close(self, one: TorchJob, other: TorchJob, tolerance: float | None = None) -> None:
        """Assert that parameters and the losses of all batches are equal within a tolerance.

        Args:
            one: first job.
            other: second job.
            tolerance: absolute and relative tolerance, by default that of the class.
        """
        within = self.tolerance if tolerance is None else tolerance
        for told in (TorchJob.parameters, TorchJob.losses):
            torch.testing.assert_close(told(one), told(other), atol=within, rtol=within)

    def assert_same(self, one: TorchJob, other: TorchJob) -> None:
        """Assert that the outcomes of two jobs are bitwise equal.

        If the adapter is not ``exact``, weights and losses are compared within ``tolerance``, and only values that do
        not depend on weights must be equal.
        """
        if self.exact:
            for (name, mine), theirs in zip(one.outcome().items(), other.outcome().values(), strict=True):
                assert bitwise_form(mine) == bitwise_form(theirs), f"{name} differ"
        else:
            self.assert_close(one, other)
            assert one.steps_of_reports() == other.steps_of_reports()
            assert one.own() == other.own()


def _make_jobs(suite: AdapterSuite, directory: Path) -> Jobs:
    hparams = {"global_batch_size": 8, **({"clip_grad_l2_norm": 0.5} if suite.clips else {})}
    alike = {"hyperparameters": hparams, "distributed": {"backend": suite.backend, **suite.options}}
    configs: dict[str, dict[str, Any]] = {
        ONE_MODEL: {**alike, "entrypoint": "model_def:OneModel"},
        ADVERSARIES: {
            **alike,
            "entrypoint": "model_def:Adversaries" if suite.full_weights else "model_def:AdversariesInParts",
            "optimizations": {"aggregation_frequency": 2},
        },
    }
    backend = cast("BackendSpec", plugin_registry().find("backend", suite.backend))
    adapter = backend.adapters["pytorch"].partition(":")[0]
    job = partial(TorchJob, code=CODE, weights=suite.weights, limit=suite.limit)
    return Jobs(directory, job, configs, modules=["det_torch._run", adapter, *suite.imports])
