"""Trials that the suite trains.

``data`` in the config has their options. The environment variable ``FAIL`` chooses the failure of a slot.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from det_torch import (
    DataLoader,
    LRScheduler,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
)
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info

RECORDS = 48
BUFFER = "total"
"""Name of the only buffer."""


def table(records: int) -> TensorDataset:
    numbers = torch.Generator().manual_seed(3)
    return TensorDataset(torch.rand(records, 3, generator=numbers), torch.rand(records, 1, generator=numbers))


def draw() -> float:
    """Return a sum of random numbers of all global generators."""
    return random.random() + float(np.random.rand()) + torch.rand(()).item()  # noqa: S311


def augmented(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(3.0) / 3 + index / RECORDS + draw(), torch.tensor([index / RECORDS])


class Augmented(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return augmented(index)

    def __len__(self) -> int:
        return RECORDS


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        return map(augmented, range(worker.id, RECORDS, worker.num_workers) if worker else range(RECORDS))


class Seen(MetricReducer):
    """Number of records over all slots."""

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


class Memory(PyTorchCallback):
    """Callback with a state that differs between slots from the start."""

    def __init__(self, rank: int) -> None:
        self.rank, self.value = rank, 100.0**rank

    def on_training_workload_end(self, avg_metrics: Any, batch_metrics: Any) -> None:
        self.value += 1

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        print(f"rank {self.rank} knows of {uuid}", flush=True)  # noqa: T201

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


class Predictor(nn.Module):
    """Model that returns predictions and its buffer, in which every slot sums up its own inputs."""

    total: torch.Tensor

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
        self.register_buffer(BUFFER, torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.total += inputs.mean()
        return torch.cat([self.body(inputs), self.total.expand(len(inputs), 1)], 1)


class Base(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.options = context.get_data_config()
        self.rank = context.distributed.rank
        self.memory = Memory(self.rank)
        self.seen = context.wrap_reducer(Seen(), "seen")
        self.values = context.wrap_reducer(lambda values: float(np.cumsum(values)[-1]), "values")
        torch.manual_seed(self.rank)  # Initial weights differ between slots, to test that the chief's are used.

    def schedule(self, optimizer: torch.optim.Optimizer) -> tuple[Any, LRScheduler.StepMode]:
        mode = LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97), mode

    def count(self, batch: Any) -> None:
        self.seen.update(len(batch[0]))  # type: ignore[attr-defined]
        self.values.update(batch[0].sum().item())  # type: ignore[attr-defined]

    def metrics(self, loss: torch.Tensor, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        own = {"rank": self.rank, "drawn": draw(), "memory": self.memory.value}
        return {"loss": loss, "at": [epoch_idx, batch_idx], **own}

    def trained(self, batches: int) -> None:
        how, *when = os.environ.get("FAIL", "nothing").split()
        if when == [str(self.rank), str(batches)]:
            FAILURES[how](self)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"memory": self.memory}

    def build_training_data_loader(self) -> Any:
        size, workers = self.context.get_per_slot_batch_size(), self.options.get("workers", 0)
        kind = self.options.get("kind", "table")
        if kind == "stream":
            return DataLoader(Stream(), size, num_workers=workers, drop_last=True)
        return DataLoader(table(RECORDS) if kind == "table" else Augmented(), size, shuffle=True, num_workers=workers)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(table(11), 2)  # six batches, the last of one record


def fail(trial: Base) -> None:
    raise ArithmeticError(f"rank {trial.rank} fails on purpose")


FAILURES: dict[str, Callable[[Base], None]] = {
    "kill": lambda trial: os.kill(os.getpid(), signal.SIGKILL),
    "freeze": lambda trial: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda trial: os.kill(os.getpid(), signal.SIGTERM),
    "stop": lambda trial: trial.context.set_stop_requested(True),
    "raise": fail,
}


class OneModel(Base):
    """Trial with one model with a buffer, in the style in which det drives."""

    def build_model(self) -> nn.Module:
        return Predictor(self.options.get("dropout", 0.0))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        return LRScheduler(*self.schedule(optimizer))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        self.count(batch)
        return nn.functional.mse_loss(model(batch[0])[:, :1], batch[1])

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        self.trained(batch_idx)
        return self.metrics(self.loss(model, batch), epoch_idx, batch_idx)

    def evaluation_reducer(self) -> Any:
        bounds = {"lowest": Reducer.MIN, "highest": Reducer.MAX}
        of_outputs = {
            f"{bound}_{name}": reducer for bound, reducer in bounds.items() for name in ("prediction", "buffer")
        }
        return {"validation_loss": Reducer.AVG, "sums": Reducer.SUM, **of_outputs}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        for _ in range(1 + self.rank):  # slots may call models different numbers of times
            prediction, buffer = model(torch.ones(1, 3, device=self.context.device)).sum(0)
        outputs = {"prediction": prediction, "buffer": buffer}
        of_outputs = {f"{bound}_{name}": value for bound in ("lowest", "highest") for name, value in outputs.items()}
        return {"validation_loss": self.loss(model, batch), "sums": batch[0].sum(0), **of_outputs}


class Adversaries(Base):
    """Trial with adversarial models, in the style in which the trial drives.

    One model learns to satisfy another, and a third is frozen. The chief alone evaluates.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        dropout = nn.Dropout(self.options.get("dropout", 0.0))
        self.maker = context.wrap_model(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), dropout, nn.Linear(8, 1)))
        self.judge = context.wrap_model(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
        self.fixed = context.wrap_model(nn.Linear(3, 1).requires_grad_(False))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.maker.parameters(), lr=0.1, momentum=0.9))
        self.adam = context.wrap_optimizer(torch.optim.Adam(self.judge.parameters(), lr=0.01, eps=1e-2))
        context.wrap_lr_scheduler(*self.schedule(self.sgd))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.count(batch)
        inputs, targets = batch
        made = self.maker(inputs) + self.fixed(inputs)
        judged = self.judge(made.detach()).square().mean() + (self.judge(targets) - 1).square().mean()
        self.context.backward(judged)
        self.context.step_optimizer(self.adam)

        self.judge.requires_grad_(False)
        loss = (made - targets).square().mean() + 0.1 * (self.judge(made) - 1).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd, self.clip if "clip_grad_l2_norm" in self.context.get_hparams() else None)
        self.judge.requires_grad_(True)
        self.trained(batch_idx + 1)
        return {"judged": judged, **self.metrics(loss, epoch_idx, batch_idx)}

    def clip(self, weights: Any) -> None:
        nn.utils.clip_grad_norm_(weights, self.context.get_hparam("clip_grad_l2_norm"))

    def error(self, batch: Any) -> torch.Tensor:
        self.count(batch)
        return nn.functional.mse_loss(self.maker(batch[0]), batch[1])

    def evaluate_full_dataset(self, data_loader: Any) -> Any:
        assert self.rank == 0, "the chief alone evaluates"
        errors = [self.error(self.context.to_device(batch)) for batch in data_loader]
        return {"validation_loss": torch.stack(errors).mean()}


class AdversariesInParts(Adversaries):
    """Variant of `Adversaries` for adapters with which no slot has a whole model."""

    evaluate_full_dataset = PyTorchTrial.evaluate_full_dataset

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.error(batch)}
