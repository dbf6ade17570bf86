"""Trials of the suite, and the jobs that train them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from det_core.plugins import plugin_registry
from det_core.specs import BackendSpec
from det_core.testing import job_factory
from det_torch.testing._job import CODE, TorchJob

if TYPE_CHECKING:
    from det_torch.testing._suite import AdapterSuite

ONE_MODEL, ADVERSARIES = "one model", "adversaries"
"""Names of the two trials. det drives the first, and the second drives itself."""

Jobs: TypeAlias = job_factory.JobFactory[TorchJob]


def make_torch_jobs(suite: AdapterSuite, directory: Path) -> Jobs:
    """Return the jobs of one class of tests.

    Args:
        suite: class of tests, which describes the adapter.
        directory: directory for all jobs.
    """
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
    adapter = (
        cast("BackendSpec", plugin_registry().find("backend", suite.backend)).adapters["pytorch"].partition(":")[0]
    )
    job = partial(TorchJob, code=CODE, weights=suite.weights, limit=suite.limit)
    return job_factory.JobFactory(directory, job, configs, modules=["det_torch._run", adapter, *suite.imports])
