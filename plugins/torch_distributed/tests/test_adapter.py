"""DistributedDataParallel passes the suite that every adapter has to pass, and resumes exactly on four slots too."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from det_testing.trial_job import InjectedFailure
from det_torch.testing import AdapterCompliance
from det_torch.testing.jobs import ADVERSARIES, ONE_MODEL, Jobs
from det_torch_distributed._ddp import DDPBackend
from det_torch_distributed._options import TorchDistributedOptions

from det_core.errors import InvalidTrial


class TestReplicas(AdapterCompliance):
    backend = "torch_distributed"

    @pytest.mark.integration
    @pytest.mark.slow
    @pytest.mark.parametrize("trial", [ONE_MODEL, ADVERSARIES])
    def test_four_slots_resume_exactly(self, jobs: Jobs, trial: str) -> None:
        """The position of an element in a bucket decides the order in which a ring sums it up, and must not change."""
        job, undisturbed = jobs.make(trial), jobs.undisturbed(trial, 4)
        assert job.run(4, InjectedFailure("kill", rank=1, batches=8)) != 0, job.output()
        assert 0 < job.steps() < 8, job.output()
        self.assert_same(job.start(4).ended(), undisturbed.ended())


@pytest.fixture
def one_slot() -> Iterator[None]:
    """Create a process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def replicas(device: str, **options: Any) -> DDPBackend:
    context: Any = SimpleNamespace(device=torch.device(device))
    return DDPBackend(context, TorchDistributedOptions(**options))


def test_batch_norm_over_all_slots_needs_gpus() -> None:
    with pytest.raises(InvalidTrial, match=r"distributed\.sync_batch_norm needs GPUs.*GroupNorm"):
        replicas("cpu", sync_batch_norm=True)


@pytest.mark.usefixtures("one_slot")
def test_batch_norm_is_over_all_slots_if_requested() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = {name: value.data_ptr() for name, value in model.state_dict().items()}
    replicas("xpu").wrap_model(model)
    assert not isinstance(model[1], torch.nn.SyncBatchNorm)
    with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
        replicas("xpu", sync_batch_norm=True).wrap_model(model)
    assert isinstance(model[1], torch.nn.SyncBatchNorm)
    assert {name: value.data_ptr() for name, value in model.state_dict().items()} == state, (
        "checkpoints have the same tensors"
    )


def add_group(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})


def unfreeze(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    model[0].requires_grad_(True)  # type: ignore[index]


@pytest.mark.usefixtures("one_slot")
@pytest.mark.parametrize("drift", [add_group, unfreeze])
@pytest.mark.parametrize("all_frozen", [False, True])
def test_slots_cannot_drift_apart(drift: Any, all_frozen: bool) -> None:
    """Gradients that slots do not exchange are refused when an optimizer would use them."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    (model if all_frozen else model[0]).requires_grad_(False)
    backend = replicas("cpu")
    wrapped = backend.wrap_model(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    stepped = []

    def train() -> None:
        loss = wrapped(torch.ones(1, 2)).sum() + sum(weight.sum() for weight in optimizer.param_groups[-1]["params"])
        if loss.requires_grad:
            loss.backward()
        backend.step(optimizer, lambda: stepped.append(1), clips=False)

    train()
    assert stepped
    drift(optimizer, model)
    with pytest.raises(InvalidTrial, match=r"parameter of shape \(2,.*drift apart.*find_unused_parameters"):
        train()
    assert len(stepped) == 1
