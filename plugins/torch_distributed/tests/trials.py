"""Trials for one slot or several. As a program it trains one run of the trial of the given name, on its slots."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from typing import Any

import numpy as np
import torch
from det_torch import DataLoader, MetricReducer, PyTorchCallback, PyTorchTrial, PyTorchTrialContext, Reducer
from det_torch._run import run_trial
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import det_core as det
from det_core.core import DistributedContext

RECORDS = 48
RANK = int(os.environ.get("RANK", "0"))
FAILING_RANK, FAILING_BATCH = map(int, os.environ.get("FAIL", "-1 -1").split())
"""Which rank does what ``HOW`` says, and after how many batches."""


def fail() -> None:
    how = os.environ["HOW"]
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "leave":
        os.kill(os.getpid(), signal.SIGTERM)
    elif how == "raise":
        raise ArithmeticError(f"rank {RANK} fails on purpose")


def table(records: int) -> TensorDataset:
    numbers = torch.Generator().manual_seed(3)
    return TensorDataset(torch.rand(records, 3, generator=numbers), torch.rand(records, 1, generator=numbers))


class Augmented(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        noise = random.random() + np.random.rand() + torch.rand(1).item()
        return torch.arange(3.0) / 3 + index / RECORDS + noise, torch.tensor([index / RECORDS])

    def __len__(self) -> int:
        return RECORDS


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return map(Augmented().__getitem__, range(RECORDS))


class Seen(MetricReducer):
    """How many records there were, over all slots."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count = 0

    def update(self, count: int) -> None:
        self.count += count

    def per_slot_reduce(self) -> int:
        return self.count

    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        return sum(per_slot_metrics)


class Counting(PyTorchCallback):
    """Has a memory of its own on each slot."""

    def __init__(self) -> None:
        self.reports = 0

    def on_training_workload_end(self, avg_metrics: Any) -> None:
        self.reports += 1

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        print(f"rank {RANK} knows of {uuid}", flush=True)

    def state_dict(self) -> dict[str, Any]:
        return {"reports": self.reports, "rank": RANK}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.reports = state_dict["reports"]
        print(f"rank {RANK} has the callback of rank {state_dict['rank']}", flush=True)


class Base(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.options = context.get_data_config()
        self.seen = context.wrap_reducer(Seen(), "seen")
        self.values = context.wrap_reducer(lambda values: float(np.cumsum(values)[-1]), "values")

    def network(self) -> nn.Module:
        if self.options.get("dropout"):
            return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def sgd(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self.seen.update(len(batch[0]))  # type: ignore[attr-defined]
        self.values.update(batch[0].sum().item())  # type: ignore[attr-defined]
        return ((model(batch[0]).float() - batch[1]) ** 2).mean()

    def trained(self, batch_idx: int) -> None:
        if RANK == FAILING_RANK and batch_idx + 1 == FAILING_BATCH:
            if os.environ["HOW"] == "stop":
                self.context.set_stop_requested(True)
            else:
                fail()

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"counting": Counting()}

    def build_training_data_loader(self) -> Any:
        size, workers = self.context.get_per_slot_batch_size(), self.options.get("workers", 0)
        if self.options.get("iterable"):
            return DataLoader(Stream(), size, num_workers=workers, drop_last=True)
        data = Augmented() if self.options.get("dropout") else table(RECORDS)
        return DataLoader(data, size, shuffle=True, num_workers=workers)  # type: ignore[arg-type]

    def build_validation_data_loader(self) -> Any:
        return DataLoader(table(11), 2)  # six batches, the last of one record


class FrameworkDrives(Base):
    def build_model(self) -> nn.Module:
        return self.network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.sgd(model)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        self.trained(batch_idx - 1)
        return {"loss": self.loss(model, batch), "rank": RANK, "at": [epoch_idx, batch_idx]}

    def evaluation_reducer(self) -> Any:
        return {"validation_loss": Reducer.AVG, "sums": Reducer.SUM, "worst": Reducer.MAX}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        loss = self.loss(model, batch)
        return {"validation_loss": loss, "sums": batch[0].sum(0), "worst": loss}


class UserDrives(Base):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(self.network())
        self.frozen = context.wrap_model(nn.Linear(3, 1).requires_grad_(False))
        compression = bool(self.options.get("compression"))
        self.optimizer_ = context.wrap_optimizer(self.sgd(self.model), fp16_compression=compression)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.loss(self.model, batch) + 0 * self.frozen(batch[0]).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer_, lambda weights: nn.utils.clip_grad_norm_(weights, 0.5))
        self.trained(batch_idx)
        return {"loss": loss, "rank": RANK, "at": [epoch_idx, batch_idx]}

    def evaluate_full_dataset(self, data_loader: Any) -> Any:
        assert RANK == 0
        losses = [self.loss(self.model, batch) for batch in data_loader]
        return {"validation_loss": torch.stack(losses).mean()}


def train(style: str) -> None:
    ranks = DistributedContext.from_torch_distributed() if "WORLD_SIZE" in os.environ else None
    with det.core.init(distributed=ranks) as core:
        run_trial({"framework": FrameworkDrives, "user": UserDrives}[style], core)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    train(sys.argv[1])
