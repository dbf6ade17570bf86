"""Conversion of whole tensors to the parts that this slot has."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from det_torch import PyTorchTrialContext
from torch.distributed.tensor import DTensor, distribute_tensor


def empty_shard_like(
    parts: Mapping[str, torch.Tensor], name: str, size: torch.Size, dtype: torch.dtype
) -> torch.Tensor:
    """Return an empty tensor to read a saved tensor into.

    The result is sharded like this slot's part of the named weight. If there is no such weight, or its shape differs,
    the result is a whole tensor on the CPU.

    Args:
        parts: name -> this slot's part, where a name is the number of the model and the name in the model.
        name: name of the weight.
        size: full shape of the saved tensor.
        dtype: dtype of the saved tensor.
    """
    part = parts.get(name)
    if part is None or part.shape != size:
        return torch.empty(size, dtype=dtype)
    return torch.empty_like(part, dtype=dtype)


def shard_state(
    context: PyTorchTrialContext, state: Mapping[str, Any], parts: Mapping[str, torch.Tensor]
) -> dict[str, list[Any]]:
    """Return this slot's part of the models, optimizers and gradients in a state of whole tensors.

    All slots must call it together.

    Args:
        context: context of the trial.
        state: state with ``models_state_dict``, ``optimizers_state_dict`` and possibly ``gradients``.
        parts: name -> this slot's part, as for `empty_shard_like`.

    Returns:
        ``models_state_dict``, ``optimizers_state_dict`` and ``gradients``.
    """
    models, optimizers = [], []
    for number, saved in enumerate(state["models_state_dict"]):
        models.append(copy(saved))  # a copy keeps the versions of the modules
        models[-1].update((name, _part(value, parts.get(f"{number}.{name}"))) for name, value in saved.items())
    for optimizer, saved in zip(context.optimizers, state["optimizers_state_dict"], strict=False):
        weights = dict(enumerate(chain.from_iterable(group["params"] for group in optimizer.param_groups)))
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
    """Return this slot's part of one model's mean gradients over the slots.

    Each slot has its own gradients during a window of aggregation.
    """
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
    """Return this slot's part of a tensor if the weight is sharded and of the same shape, else the value itself."""
    if not (isinstance(weight, DTensor) and isinstance(value, torch.Tensor) and value.shape == weight.shape):
        return value
    part = distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)
    return part.clone()  # a view would keep the whole tensor in memory
