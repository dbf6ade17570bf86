"""Checkpoints of compiled models equal those of the uncompiled models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from det_torch import PyTorchTrial, PyTorchTrialContext
from det_torch._callback import PyTorchCallbackList
from det_torch._compiled import uncompiled_models, unwrap_compiled
from det_torch._trial_steps import build_trial_steps
from torch import nn


@pytest.fixture(autouse=True)
def _no_old_code() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(compiled(nn.Linear(3, 4)), nn.BatchNorm1d(4))
        self.head = compiled(nn.Sequential(compiled(nn.Linear(4, 1))))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(inputs))


NAMES = [
    "encoder.0.weight",
    "encoder.0.bias",
    *(f"encoder.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")),
    "head.0.weight",
    "head.0.bias",
]


@pytest.mark.parametrize("compile_", [lambda model: model, in_place, compiled])
@pytest.mark.integration
def test_the_names_are_those_of_the_model_inside(compile_: Any) -> None:
    model = compile_(nn.Sequential(nn.Linear(3, 1)))
    assert list(unwrap_compiled(model).state_dict()) == ["0.weight", "0.bias"]
    with uncompiled_models([model]) as (inside,):
        assert list(inside.state_dict()) == ["0.weight", "0.bias"]
        assert list(inside.parameters()) == list(model.parameters())


@pytest.mark.integration
def test_compiled_submodules_keep_their_names() -> None:
    torch.manual_seed(1)
    model = Nested()
    with torch.no_grad():
        before = model.eval()(torch.ones(4, 3))
    wrappers = [model.encoder[0], model.head, model.head._orig_mod[0]]
    with uncompiled_models([compiled(model)]) as (inside,):
        assert inside is model
        state = inside.state_dict()
    assert list(state) == NAMES
    assert "encoder.1" in state._metadata
    assert [model.encoder[0], model.head, model.head._orig_mod[0]] == wrappers
    with torch.no_grad():
        assert torch.equal(model(torch.ones(4, 3)), before)

    other = Nested()
    with pytest.raises(RuntimeError, match="boom"), uncompiled_models([other]):
        raise RuntimeError("boom")
    with uncompiled_models([other]) as (inside,):
        inside.load_state_dict(state)
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    assert "_orig_mod" in next(iter(other.state_dict()))


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 1), nn.Dropout())


class Trial(PyTorchTrial):
    compile_ = staticmethod(lambda model: model)

    build_training_data_loader = build_validation_data_loader = lambda self: None


class FrameworkDrives(Trial):
    def build_model(self) -> nn.Module:
        return self.compile_(network())

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        return model(batch).pow(2).mean()

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"output": model(batch)}


class UserDrives(Trial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(self.compile_(network()))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return loss

    def evaluate_batch(self, batch: Any) -> Any:
        return {"output": self.model(batch)}


def train(trial_class: type[Trial], context: PyTorchTrialContext) -> list[torch.Tensor]:
    steps = build_trial_steps(trial_class(context), context, PyTorchCallbackList({}))
    torch.manual_seed(2)
    for batch_idx in range(3):
        steps.train_batch(torch.rand(4, 3), 0, batch_idx)
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
    context.models[0].eval()
    return [*context.models[0].parameters(), steps.evaluate(torch.ones(2, 3), 0)["output"]]


@pytest.mark.parametrize("compile_", [in_place, compiled])
@pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
def test_compiled_models_train_the_same(trial_class: type[Trial], compile_: Any, make_context: Any) -> None:
    context = make_context()
    found = train(type("Compiled", (trial_class,), {"compile_": staticmethod(compile_)}), context)
    assert all(map(torch.equal, found, train(trial_class, make_context())))
    assert list(unwrap_compiled(context.models[0]).state_dict()) == ["0.weight", "0.bias"]
