"""Property tests of exact resume, with random trials that stop after random batches."""

from __future__ import annotations

import copy
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from det_testing import campaign_seeds
from det_torch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lives import Life
from torch import nn
from torch.utils.data import Dataset

SEEDS = campaign_seeds(few=1, many=100)
BATCHES = 15
"""Three epochs of five batches."""
FLAGS = ("eval", "train", "freeze", "thaw")
"""Changes of the flags of a module."""
LAYERS = ("0", "1", "3", "4")
AGAIN = ("on_trial_startup", "on_training_start")
"""Hooks that a resumed trial calls once more."""
MOMENTS = (
    *AGAIN,
    "on_training_epoch_start",
    "on_training_epoch_end",
    "on_validation_start",
    "on_validation_epoch_end",
    "on_validation_end",
)
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=0.01, t0=3),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "exponential": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
    "cyclic": lambda optimizer: torch.optim.lr_scheduler.CyclicLR(
        optimizer, 0.001, 0.05, step_size_up=3, cycle_momentum=False
    ),
}


@dataclass(frozen=True)
class Plan:
    """Random choices for one trial.

    Attributes:
        flags: number of a batch -> layer, and the change of its flags before that batch.
        draws: hooks in which a callback draws from all three generators.
        average: whether validations use an average of the weights, which a callback swaps in and out.
        group_at: number of the batch before which the optimizer gets another group, or None.
        stops: numbers of batches after which the process ends and another one continues.
        validations: numbers of batches after which a validation follows.
    """

    optimizer: str
    scheduler: tuple[str, LRScheduler.StepMode] | None
    aggregation: int
    models: int
    loose: bool
    dropout: float
    shuffle: bool
    flags: dict[int, tuple[str, str]]
    draws: frozenset[str]
    average: bool
    group_at: int | None
    clip: bool
    stops: tuple[int, ...]
    validations: frozenset[int]


batches = st.integers(1, BATCHES - 1)
plans = st.builds(
    Plan,
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    scheduler=st.none() | st.tuples(st.sampled_from(sorted(SCHEDULERS)), st.sampled_from(LRScheduler.StepMode)),
    aggregation=st.integers(1, 3),
    models=st.integers(1, 2),
    loose=st.booleans(),
    dropout=st.sampled_from([0.0, 0.4]),
    shuffle=st.booleans(),
    flags=st.dictionaries(batches, st.tuples(st.sampled_from(LAYERS), st.sampled_from(FLAGS)), max_size=4),
    draws=st.frozensets(st.sampled_from(MOMENTS), max_size=3),
    average=st.booleans(),
    group_at=st.none() | batches,
    clip=st.booleans(),
    stops=st.frozensets(batches, min_size=1, max_size=4).map(lambda stops: tuple(sorted(stops))),
    validations=st.frozensets(st.integers(1, BATCHES), max_size=3),
)


def draw() -> float:
    """Draw from all three generators."""
    return random.random() + float(np.random.rand()) + torch.rand(1).item()


class Noisy(Dataset[Any]):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(3.0) / 3 + index / 20 + draw(), torch.tensor([index / 20])

    def __len__(self) -> int:
        return 20


class Draws(PyTorchCallback):
    """Callback that draws in one hook and keeps the sum."""

    def __init__(self) -> None:
        self.sum = 0.0

    def draw(self, *_: Any) -> None:
        self.sum += draw()

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self.sum}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.sum = state_dict["sum"]


class Average(PyTorchCallback):
    """Callback that keeps an average of the weights and validates with it."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.average = model, copy.deepcopy(model.state_dict())

    def update(self) -> None:
        for name, value in self.model.state_dict().items():
            self.average[name] = value.clone() if value.dtype is torch.long else self.average[name] * 0.9 + value * 0.1

    def swap(self) -> None:
        weights = copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.average)
        self.average = weights

    def on_validation_start(self) -> None:
        self.swap()

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.swap()

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.average = state_dict["average"]


class Groups(PyTorchCallback):
    """Callback that adds the parameter group again that training had added before the checkpoint."""

    def __init__(self, trial: RandomTrial) -> None:
        self.trial = trial

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        assert checkpoint is not None
        groups = checkpoint["optimizers_state_dict"][0]["param_groups"]
        if len(groups) > len(self.trial.optimizers[0].param_groups):
            self.trial.add_group()


class RandomTrial(PyTorchTrial):
    plan: Plan

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        plan = self.plan
        self.models = [
            context.wrap_model(
                nn.Sequential(
                    nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(plan.dropout), nn.Linear(6, 4), nn.LayerNorm(4)
                )
            )
            for _ in range(plan.models)
        ]
        self.late = nn.Parameter(torch.full((4,), 0.5))
        self.balance = nn.Parameter(torch.zeros(plan.models))
        self.optimizers = []
        for number, model in enumerate(self.models):
            parameters = [*model.parameters(), *([self.balance] if plan.loose and not number else [])]
            self.optimizers.append(context.wrap_optimizer(OPTIMIZERS[plan.optimizer](parameters)))
        self.manual: Any = None
        if plan.scheduler and (
            plan.models > 1 or plan.group_at is None
        ):  # torch's schedulers do not support later groups
            kind, mode = plan.scheduler
            scheduler = context.wrap_lr_scheduler(SCHEDULERS[kind](self.optimizers[-1]), mode)
            self.manual = scheduler if mode is LRScheduler.StepMode.MANUAL_STEP else None
        self.average = Average(self.models[0])

    def add_group(self) -> None:
        self.optimizers[0].add_param_group({"params": [self.late], "lr": 0.3})

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        callbacks: dict[str, PyTorchCallback] = {"groups": Groups(self)}
        if self.plan.average:
            callbacks["average"] = self.average
        for hook in sorted(self.plan.draws):
            callbacks[hook] = (
                type(hook, (PyTorchCallback,), {hook: lambda self, *_: draw()})()
                if hook in AGAIN
                else type(hook, (Draws,), {hook: Draws.draw})()
            )
        return callbacks

    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Noisy(), 4, shuffle=self.plan.shuffle)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Noisy(), 10)

    def output(self, batch: Any) -> list[torch.Tensor]:
        inputs, target = batch
        # Parameters without an optimizer must get no gradients, because nothing would set them to zero.
        factor = self.late.sum() if len(self.optimizers[0].param_groups) > 1 else 2.0
        return [(model(inputs).mean(1, keepdim=True) * factor - target).square().mean() for model in self.models]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.plan.group_at:
            self.add_group()
        if batch_idx in self.plan.flags:
            layer, change = self.plan.flags[batch_idx]
            module = self.models[-1].get_submodule(layer)
            if change in ("eval", "train"):
                module.train(change == "train")
            else:
                module.requires_grad_(change == "thaw")
        losses = torch.stack(self.output(batch))
        loss = (losses * self.balance.softmax(0)).sum()
        self.context.backward(loss)
        clip = (lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.5)) if self.plan.clip else None
        for optimizer in self.optimizers:
            self.context.step_optimizer(optimizer, clip_grads=clip)
        self.average.update()
        if self.manual and batch_idx % 3 == 2:
            self.manual.step()
        return {"loss": loss, "losses": losses, "at": [epoch_idx, batch_idx]}

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"validation_loss": self.output(batch)[0], "noise": torch.rand(())}


def play(make_context: Any, fingerprint: Any, directory: Path, seed: int, *, examples: int) -> None:
    """Compare random trials with and without stops."""
    numbers = count()

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # shrinking a failure takes minutes: add Phase.shrink to wait for it
        suppress_health_check=list(HealthCheck),
    )
    @given(plans)
    def compare(plan: Plan) -> None:
        place = directory / str(next(numbers))
        place.mkdir()
        trial_class = type("Trial", (RandomTrial,), {"plan": plan})
        optimizations = {"aggregation_frequency": plan.aggregation}
        whole, parts = (Life(trial_class, make_context, place, optimizations=optimizations) for _ in range(2))
        expected = whole.live([BATCHES], plan.validations)
        found = parts.live([*plan.stops, BATCHES], plan.validations)
        assert fingerprint(parts.rows) == fingerprint(whole.rows)
        assert fingerprint(parts.validations) == fingerprint(whole.validations)
        assert fingerprint(found) == fingerprint(expected)
        shutil.rmtree(place)

    compare()


@pytest.mark.integration  # it trains many whole trials
def test_a_trial_stopped_anywhere_equals_an_uninterrupted_one(
    make_context: Any, fingerprint: Any, tmp_path: Path
) -> None:
    play(make_context, fingerprint, tmp_path, 1, examples=20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_many_trials_stopped_anywhere_equal_uninterrupted_ones(
    make_context: Any, fingerprint: Any, tmp_path: Path, seed: int
) -> None:
    play(make_context, fingerprint, tmp_path, seed, examples=200)
