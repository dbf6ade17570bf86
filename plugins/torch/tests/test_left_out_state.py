"""One warning at the first checkpoint names state that changed and that checkpoints leave out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import DataLoader, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from det_torch._adapter import PyTorchAdapter
from lives import never
from torch import nn
from torch.utils.data import TensorDataset

INPUTS = torch.arange(36.0).reshape(12, 3) / 36


class Plain(nn.Module):
    """Module with state in attributes, of which some changes and some does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.register_buffer("table", torch.ones(3), persistent=False)
        self.register_buffer("saved", torch.zeros(3))
        self.mean, self.large, self.mask = torch.zeros(2), torch.zeros(1 << 21), torch.zeros(0)
        self.ready, self.steps, self.width, self.nan = False, 0, 3, float("nan")
        self.noise = np.random.default_rng(1)
        self.view = self.saved[:2]
        self.last: Any = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.hidden = inputs.detach().mean(0)
        self.saved += 1
        self.mean, self.last = self.mean + 1, inputs.detach()
        self.large[0] += 1
        self.mask = torch.zeros(len(inputs))
        self.steps += 1
        self.ready = True
        self.noise.random()
        outputs: torch.Tensor = self.linear(inputs)
        self.outputs = outputs
        return outputs


class Trial(PyTorchTrial):
    """Trial of one module."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.random = random.Random(3)
        self.loader_random = torch.Generator()
        self.model = context.wrap_model(self.module())
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def module(self) -> nn.Module:
        return Plain()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.random.random()
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return loss

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.model(batch[0]).square().mean()}

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(INPUTS), 4, shuffle=True, generator=self.loader_random)

    def build_validation_data_loader(self) -> Any:
        return DataLoader(TensorDataset(INPUTS), 3)


def warnings_of(trial: type[PyTorchTrial], make_context: Any, caplog: Any, tmp_path: Path) -> list[str]:
    """Return the warnings of a training with two checkpoints, and of one that continues from the second."""
    context = make_context()
    adapter = PyTorchAdapter(trial(context), context)
    adapter.started()
    for batches in (3, 2):
        adapter.train(batches, never)
        adapter.validate(never)
        adapter.snapshot()(tmp_path)
    context = make_context()
    adapter = PyTorchAdapter(trial(context), context)
    adapter.load(tmp_path, batches_trained=5)
    adapter.started()
    adapter.train(2, never)
    adapter.snapshot()
    return [message for message in caplog.messages if message.startswith("checkpoints leave out")]


def test_what_changed_and_is_left_out_is_named_once(make_context: Any, caplog: Any, tmp_path: Path) -> None:
    (said,) = warnings_of(Trial, make_context, caplog, tmp_path)
    named = said.removeprefix("checkpoints leave out ").partition(", which changed")[0]
    attributes = ("ready", "steps", "noise", "hidden", "mean", "large")
    assert sorted(named.split(", ")) == sorted([*(f"models[0].{name}" for name in attributes), "trial.random"])
    assert all(way in said for way in ("register_buffer", "get_extra_state()", "state_dict() of a callback"))


class Saves(PyTorchCallback):
    def state_dict(self) -> dict[str, Any]:
        return {"a": 1}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class SavesOthers(PyTorchCallback):
    def on_checkpoint_save_start(self, checkpoint: Any) -> None: ...


class Described(Plain):
    def get_extra_state(self) -> Any:
        return {"steps": self.steps}

    def set_extra_state(self, state: Any) -> None: ...


def ordinary() -> nn.Module:
    """Return a model of parts whose attributes change although no state is lost."""
    torch.manual_seed(1)
    weighted = nn.utils.spectral_norm(nn.Linear(3, 3))
    parts = [nn.BatchNorm1d(3), nn.Dropout(), weighted, nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))]
    return nn.Sequential(*parts, torch.optim.swa_utils.AveragedModel(nn.Linear(3, 3)))


@pytest.mark.parametrize(
    "changes",
    [
        {"module": lambda self: Described(), "build_callbacks": lambda self: {"saves": Saves()}},
        {"build_callbacks": lambda self: {"saves": SavesOthers()}},
        {"module": lambda self: ordinary(), "random": property(lambda self: random, lambda self, value: None)},
    ],
    ids=["extra state and callback", "callback that may save anything", "ordinary"],
)
def test_what_the_trial_saves_itself_is_not_named(
    changes: dict[str, Any], make_context: Any, caplog: Any, tmp_path: Path
) -> None:
    assert warnings_of(type("Other", (Trial,), changes), make_context, caplog, tmp_path) == []
