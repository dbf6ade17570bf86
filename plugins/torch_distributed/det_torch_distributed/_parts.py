"""Whole tensors, and the part of each that this slot has."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from det_torch import PyTorchTrialContext
from det_torch._amp import parameters
from torch.distributed.tensor import DTensor, distribute_tensor


def like(parts: Mapping[str, torch.Tensor], name: str, size: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """What to read a tensor into: a part as this slot has one of the named weight, all of it if its shape is another.

    Args:
        parts: number of the model and name in there -> this slot's part.
    """
    part = parts.get(name)
    if part is None or part.shape != size:
        return torch.empty(size, dtype=dtype)
    return torch.empty_like(part, dtype=dtype)


def cut(
    context: PyTorchTrialContext, state: Mapping[str, Any], parts: Mapping[str, torch.Tensor]
) -> dict[str, list[Any]]:
    """Models, optimizers and gradients of a state of whole tensors, with this slot's part of each; on all slots."""
    models, optimizers = [], []
    for number, saved in enumerate(state["models_state_dict"]):
        models.append(copy(saved))  # which keeps the versions of its modules
        models[-1].update((name, _part(value, parts.get(f"{number}.{name}"))) for name, value in saved.items())
    for optimizer, saved in zip(context.optimizers, state["optimizers_state_dict"], strict=False):
        weights = dict(enumerate(parameters(optimizer)))
        own = {
            index: {key: _part(value, weights.get(index)) for key, value in kept.items()}
            for index, kept in saved["state"].items()
        }
        optimizers.append({**saved, "state": own})
    gradients = [_mean(context, own, number, parts) for number, own in enumerate(state.get("gradients", ()))]
    return {"models_state_dict": models, "optimizers_state_dict": optimizers, "gradients": gradients}


def _mean(
    context: PyTorchTrialContext, gradients: Mapping[str, torch.Tensor], number: int, parts: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Of one model over the slots, each of which had gradients of its own amid a window of aggregation."""
    slots, means = context.distributed, {}
    for name in dict.fromkeys(chain.from_iterable(slots.allgather(list(gradients)))):
        part = parts[f"{number}.{name}"]
        whole = torch.zeros(part.shape, dtype=part.dtype, device=part.device)
        if name in gradients:
            whole.copy_(gradients[name])
        dist.all_reduce(whole)
        means[name] = _part(whole / slots.size, part)
    return means


def _part(value: Any, weight: torch.Tensor | None) -> Any:
    """This slot's part of a tensor that is whole, if it has one of the weight; anything else as it is."""
    if not (isinstance(weight, DTensor) and isinstance(value, torch.Tensor) and value.shape == weight.shape):
        return value
    part = distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)
    return part.clone()  # lest it be a view that keeps the whole in memory
