"""Trials and configs that the adapter rejects, checked in a process that DeepSpeed's backend started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from det_deepspeed._options import DeepSpeedOptions
from det_deepspeed._torch_backend import DeepSpeedBackend
from det_torch import LRScheduler, PyTorchTrialContext
from torch import nn

from det_core.errors import InvalidExperimentException, InvalidTrial


def two_optimizers(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(nn.Linear(1, 1))
    for _ in range(2):
        context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))


def two_models(context: PyTorchTrialContext) -> None:
    models = [context.wrap_model(nn.Linear(1, 1)) for _ in range(2)]
    context.wrap_optimizer(torch.optim.SGD([weight for model in models for weight in model.parameters()], lr=0.1))


def scheduler(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(nn.Linear(1, 1))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    mode = LRScheduler.StepMode.STEP_EVERY_EPOCH
    context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1), mode)


def clipping(context: PyTorchTrialContext) -> None:
    model = context.wrap_model(nn.Linear(1, 1))
    optimizer = context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    context.step_optimizer(optimizer, lambda weights: None)


def aggregating(context: PyTorchTrialContext) -> None:
    """Set aggregation as ``init(aggregation_frequency=2)`` does within an experiment whose config has 1."""
    context.aggregation_frequency = 2


ZERO = {"zero_optimization": {"stage": 1}}
REFUSALS: list[tuple[Callable[[PyTorchTrialContext], None], dict[str, Any], str]] = [
    (two_optimizers, {}, "two wrapped optimizers train the same"),
    (two_models, {}, "SGD trains parameters of 2 wrapped models"),
    (scheduler, {"optimizer": {"type": "Adam"}}, "ds_config has its own optimizer"),
    (clipping, {}, "set gradient_clipping in ds_config"),
    (lambda context: context.experimental.use_amp(), {**ZERO, "bf16": {"enabled": True}}, "enable bf16 or fp16"),
    (aggregating, {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, "cannot save gradients during"),
    (lambda context: None, {"train_batch_size": 7}, "train_batch_size: 7, but the experiment sets it to 8"),
]


def check() -> None:
    for wrap, config, said in REFUSALS:
        context = PyTorchTrialContext.from_config({"hyperparameters": {"global_batch_size": 8}})
        context.backend = DeepSpeedBackend(context, DeepSpeedOptions(ds_config=config))
        with pytest.raises((InvalidTrial, InvalidExperimentException), match=said):
            wrap(context)
            context.backend.ready()
