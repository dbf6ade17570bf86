"""Trials of both styles pass the suite that every framework has to pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from det_testing.framework import FrameworkCompliance, reach_point
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext
from torch import nn
from torch.utils.data import TensorDataset

INPUTS = torch.arange(36.0).reshape(18, 2) / 36


@pytest.fixture(scope="module", autouse=True)
def _one_thread_everywhere() -> Iterator[None]:
    """Limit torch to one thread, also in other processes, because the rounding of sums depends on the number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


class Data(PyTorchTrial):
    """Trial with five batches of four records per epoch."""

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(INPUTS, torch.arange(18)), self.context.get_per_slot_batch_size(), shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, _ = batch
        return (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()


class FrameworkDrives(Data):
    def build_model(self) -> nn.Module:
        return self.network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        reach_point("training")
        return {"loss": self.loss(model, batch), "records": batch[1]}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        reach_point("validation")
        return {"validation_loss": self.loss(model, batch) + torch.rand(())}


class UserDrives(Data):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(self.network())
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        reach_point("training")
        loss = self.loss(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss, "records": batch[1]}

    def evaluate_batch(self, batch: Any) -> Any:
        reach_point("validation")
        return {"validation_loss": self.loss(self.model, batch) + torch.rand(())}


class _Compliance(FrameworkCompliance):
    plugin = "det_torch.plugin"

    def weights(self, path: Path) -> Any:
        (state,) = torch.load(path / "state_dict.pth", weights_only=True)["models_state_dict"]
        return {name: tensor.numpy() for name, tensor in state.items()}

    def replace_weights(self, path: Path, source: Path) -> None:
        state, other = (torch.load(one / "state_dict.pth", weights_only=True) for one in (path, source))
        torch.save({**state, "models_state_dict": other["models_state_dict"]}, path / "state_dict.pth")


@pytest.mark.integration
@pytest.mark.soak
class TestFrameworkDrives(_Compliance):
    trial_class = FrameworkDrives


@pytest.mark.integration
class TestUserDrives(_Compliance):
    trial_class = UserDrives
