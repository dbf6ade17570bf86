"""Trial with everything that a resume could get wrong, as chosen by ``data`` in the config.

As a program, it runs the trial once and kills itself by SIGKILL after ``KILL_AFTER`` batches.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, LRScheduler, MetricReducer, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from det_torch._run import run_trial
from torch import nn
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import det_core as det

RECORDS, BATCH = 23, 4
KILL_AFTER = int(os.environ.get("KILL_AFTER", "0"))


def augmented(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    noise = random.random() + np.random.rand() + torch.rand(1).item()
    return torch.arange(3.0) + index + noise, torch.tensor([float(index)])


class Records(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return augmented(index)

    def __len__(self) -> int:
        return RECORDS


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for index in range(info.id, RECORDS, info.num_workers) if info else range(RECORDS):
            yield augmented(index)


class Continuing(Stream):
    """Stream that continues at any record, with an order of its own in each epoch."""

    def __init__(self) -> None:
        self.left: list[int] | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.left is None:
            info = get_worker_info()
            self.left = [*range(info.id, RECORDS, info.num_workers)] if info else [*range(RECORDS)]
            random.shuffle(self.left)
        while self.left:
            yield augmented(self.left.pop())
        self.left = None

    def state_dict(self) -> dict[str, Any]:
        return {"left": None if self.left is None else [*self.left]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.left = state["left"]


class Last(MetricReducer):
    """Reducer with values that a checkpoint between two reports must keep."""

    def reset(self) -> None:
        self.values: list[float] = []

    def update(self, value: float) -> None:
        self.values.append(value)

    def per_slot_reduce(self) -> list[float]:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: list[list[float]]) -> float:
        return float(np.sum(per_slot_metrics[0]))


class Average(PyTorchCallback):
    """Callback with an average of the weights, updated at every report."""

    def __init__(self) -> None:
        self.model: nn.Module | None = None
        self.shadow: dict[str, torch.Tensor] = {}
        self.calls = 0

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self.calls += 1
        assert self.model is not None
        for name, value in self.model.state_dict().items():
            self.shadow[name] = (self.shadow.get(name, 0) * 0.9 + value * 0.1).clone()

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.calls += 1000

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow, "calls": np.int64(self.calls)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.shadow, self.calls = state_dict["shadow"], int(state_dict["calls"])


class Campaign(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.options = context.get_data_config()
        self.average = Average()
        self.last = context.wrap_reducer(Last(), "last")

    def network(self) -> nn.Module:
        self.average.model = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(self.options["dropout"]), nn.Linear(8, 1)
        )
        return self.average.model

    def schedule(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97), LRScheduler.StepMode[self.options["lr"]]

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, index = batch
        loss = ((model(inputs / 20).float() - index / 20) ** 2).mean()
        self.last.update(loss.item())
        return loss

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"average": self.average}

    def build_training_data_loader(self) -> Any:
        workers = self.options["workers"]
        if self.options["torchdata"]:
            from torchdata.stateful_dataloader import StatefulDataLoader

            if self.options["iterable"]:
                return StatefulDataLoader(Continuing(), BATCH, num_workers=workers, drop_last=True)
            return StatefulDataLoader(Records(), BATCH, shuffle=True, num_workers=workers, drop_last=True)
        if self.options["iterable"]:
            return DataLoader(Stream(), BATCH, num_workers=workers, drop_last=True)
        shuffle = self.options["shuffle"]
        return DataLoader(Records(), BATCH, shuffle=shuffle, num_workers=workers, drop_last=True)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(Records(), BATCH, shuffle=True, drop_last=True)

    def after(self, batch_idx: int) -> None:
        if 0 < KILL_AFTER == batch_idx + 1:
            os.kill(os.getpid(), signal.SIGKILL)


class FrameworkDrives(Campaign):
    def build_model(self) -> nn.Module:
        return self.network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        return LRScheduler(*self.schedule(optimizer))

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        self.after(batch_idx - 1)
        return {"loss": self.loss(model, batch), "records": batch[1].flatten(), "at": [epoch_idx, batch_idx]}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": self.loss(model, batch)}


class UserDrives(Campaign):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(self.network())
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9))
        self.scheduler = context.wrap_lr_scheduler(*self.schedule(self.sgd))
        if self.options["mixed"]:
            self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=3))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if not self.options["mixed"]:
            loss = self.loss(self.model, batch)
            self.context.backward(loss)
            self.context.step_optimizer(self.sgd, lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0))
        else:
            with torch.autocast("cpu", torch.bfloat16):
                loss = self.loss(self.model, batch)
            self.context.backward(self.scaler.scale(loss))
            self.context.step_optimizer(self.sgd, scaler=self.scaler)
            if (batch_idx + 1) % self.context.get_experiment_config()["optimizations"]["aggregation_frequency"] == 0:
                self.scaler.update()
        if self.options["lr"] == "MANUAL_STEP":
            self.scheduler.step()
        self.after(batch_idx)
        return {"loss": loss, "records": batch[1].flatten(), "at": [epoch_idx, batch_idx]}

    def evaluate_full_dataset(self, data_loader: Any) -> Any:
        losses = [self.loss(self.model, self.context.to_device(batch)).detach() for batch in data_loader]
        return {"validation_loss": torch.stack(losses).mean() + torch.rand(())}


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # prints the stack of a process that hangs; data workers inherit this
    torch.set_num_threads(1)
    with det.core.init() as core:
        run_trial({"framework": FrameworkDrives, "user": UserDrives}[sys.argv[1]], core)
