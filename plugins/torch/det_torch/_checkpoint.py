"""The file in a checkpoint that holds everything a trial's training depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from det_core.errors import InvalidTrial
from det_torch._context import PyTorchTrialContext
from det_torch._random import rng_state

FILE = "state_dict.pth"


def save(context: PyTorchTrialContext, path: Path) -> None:
    """Write the state of everything that the context wraps, and of the random number generators.

    Raises:
        InvalidTrial: some state is of a type that ``torch.load(weights_only=True)`` would refuse.
    """
    state = {
        "models_state_dict": [model.state_dict() for model in context.models],
        "optimizers_state_dict": [_without_numpy(optimizer.state_dict()) for optimizer in context.optimizers],
        "lr_schedulers_state_dict": [_without_numpy(scheduler.state_dict()) for scheduler in context.lr_schedulers],
        # There are some only amid a window of aggregation, or where the trial zeroes them itself.
        "gradients": [_gradients(model) for model in context.models],
        "rng_state": rng_state(),
    }
    torch.save(state, path / FILE)
    if refused := get_unsafe_globals_in_checkpoint(str(path / FILE)):
        raise InvalidTrial(
            f"a state_dict() of the trial holds {', '.join(refused)}, which could not be loaded again safely; "
            "keep to tensors, numbers, strings, lists and dicts"
        )


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, onto the CPU."""
    state: dict[str, Any] = torch.load(path / FILE, map_location="cpu", weights_only=True)
    return state


def restore(context: PyTorchTrialContext, state: Mapping[str, Any]) -> None:
    """Put everything back except for the random number generators."""
    restore_weights(context, state)
    for optimizer, saved in zip(context.optimizers, state["optimizers_state_dict"], strict=True):
        optimizer.load_state_dict(saved)
    _check_count("LR schedulers", context.lr_schedulers, state["lr_schedulers_state_dict"])
    for scheduler, saved in zip(context.lr_schedulers, state["lr_schedulers_state_dict"], strict=True):
        scheduler.load_state_dict(saved)
    for model, gradients in zip(context.models, state["gradients"], strict=True):
        for name, parameter in model.named_parameters():
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def restore_weights(context: PyTorchTrialContext, state: Mapping[str, Any]) -> None:
    """Start from another trial: its weights and momenta, with this trial's learning rates and other options."""
    _check_count("models", context.models, state["models_state_dict"])
    _check_count("optimizers", context.optimizers, state["optimizers_state_dict"])
    for model, saved in zip(context.models, state["models_state_dict"], strict=True):
        model.load_state_dict(saved)
    for optimizer, saved in zip(context.optimizers, state["optimizers_state_dict"], strict=True):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": saved["state"]})


def _check_count(kind: str, wrapped: Sequence[Any], saved: Sequence[Any]) -> None:
    if len(wrapped) != len(saved):
        raise InvalidTrial(
            f"the checkpoint has {len(saved)} {kind}, but the trial has {len(wrapped)}; "
            "it can only continue with the code that saved it"
        )


def _gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def _without_numpy(value: Any) -> Any:
    """The same with numpy's scalars, such as a learning rate, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: _without_numpy(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_numpy(item) for item in value)
    return value
