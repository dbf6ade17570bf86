"""Checkpoints in det-torch's sharded layout, readable on any number of slots, with or without DeepSpeed.

All slots gather one tensor after another, and take turns to write it. DeepSpeed's own files fit only the same number of
slots, and are pickles, which can run code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from det_torch.sharding import (
    SHARD_DIRECTORY,
    check_count,
    load_torch_file,
    read_shard_values,
    read_sharded_state,
    write_shard_tensors,
)

from det_core.errors import InvalidTrial
from det_deepspeed._gradients import mean_over_slots
from det_deepspeed._zero_engine import ZeroEngine

_ENGINES = "engines"
"""Key, next to ``models`` and ``optimizers``, of each engine's remaining state."""


class WrappedModel(NamedTuple):
    """Model that the trial wrapped, and its engine, if it has one."""

    module: torch.nn.Module
    part: ZeroEngine | None


def save_zero_checkpoint(path: Path, models: Sequence[WrappedModel], parts: Sequence[ZeroEngine]) -> None:
    """Write this slot's share of models, optimizers and gradients into a checkpoint's directory.

    All slots must call this with models and engines in the same order.
    """
    names = _names(models)
    tensors = _SharedTensors()
    values: dict[str, Any] = {"models": [], "optimizers": [], _ENGINES: [part.values() for part in parts]}
    for number, model in enumerate(models):
        values["models"].append(_take_model(model, f"models/{number}.", tensors))
    for number, part in enumerate(parts):
        values["optimizers"].append(_take_optimizer(part, f"optimizers/{number}/", names, tensors))
        for parameter, gradient in part.gradients.means():
            tensors.add(f"gradients/{names[parameter]}", gradient)
    write_shard_tensors(path, tensors.own, values)
    own = [_named(part.gradients.own(), names) for part in parts]
    if any(own):
        torch.save(own, _own_file(path))


def restore_zero_checkpoint(
    path: Path,
    state: Mapping[str, Any],
    models: Sequence[WrappedModel],
    parts: Sequence[ZeroEngine],
    *,
    continues: bool,
) -> None:
    """Restore models, and optimizers if the same trial continues, from a checkpoint.

    Args:
        path: the directory of the checkpoint.
        state: the state of the checkpoint, used if it was saved without shards.
        models: the models, in the order of `save_zero_checkpoint`.
        parts: the engines, in the order of `save_zero_checkpoint`.
        continues: whether the same trial continues. Otherwise only the weights are restored.

    Raises:
        InvalidTrial: the models or optimizers differ from those of the checkpoint.
    """
    if (path / SHARD_DIRECTORY).is_dir():
        state = read_sharded_state(path)
    check_count("models", models, state["models_state_dict"])
    for model, saved in zip(models, state["models_state_dict"], strict=True):
        _put_model(model, saved)
    if continues:
        _put_optimizers(parts, state["optimizers_state_dict"])
        _put_gradients(path, state, models, parts)
        _put_values(path, parts)


class _SharedTensors:
    """Collection to which all slots add the same tensors in the same order, and of which each keeps its share."""

    def __init__(self) -> None:
        self.own: dict[str, torch.Tensor] = {}
        self._turns = cycle(range(dist.get_world_size()))

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Add a tensor, and keep it if it is this slot's turn."""
        if next(self._turns) == dist.get_rank():
            self.own[name] = tensor.cpu()


def _names(models: Sequence[WrappedModel]) -> dict[torch.Tensor, str]:
    return {
        parameter: f"{number}.{name}"
        for number, model in enumerate(models)
        for name, parameter in model.module.named_parameters()
    }


def _take_model(model: WrappedModel, prefix: str, tensors: _SharedTensors) -> dict[str, Any]:
    """Add the tensors of a model's state to ``tensors``, and return the rest of it."""
    rest = {}
    for name, value in model.module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.nn.Parameter) and model.part:
            tensors.add(prefix + name, model.part.weight(value))
        elif isinstance(value, torch.Tensor):
            tensors.add(prefix + name, value.detach())
        else:
            rest[name] = value
    return rest


def _take_optimizer(
    part: ZeroEngine, prefix: str, names: Mapping[torch.Tensor, str], tensors: _SharedTensors
) -> dict[str, Any]:
    order = iter(names[parameter] for parameter in part.parameters)
    groups = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": list(islice(order, size))}
        for group, size in zip(part.optimizer.param_groups, part.sizes, strict=True)
    ]
    states: dict[str, dict[str, Any]] = {}
    for parameter, state in part.states():
        name = names[parameter]
        states[name] = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors.add(f"{prefix}{name}/{key}", value)
    return {"param_groups": groups, "state": states}


def _put_model(model: WrappedModel, saved: Mapping[str, Any]) -> None:
    if model.part is None:
        model.module.load_state_dict(saved)
        return
    own = model.module.state_dict(keep_vars=True)
    if wrong := own.keys() ^ saved.keys():
        raise InvalidTrial(
            f"the checkpoint and the model differ in {', '.join(sorted(wrong))}; "
            "it can be continued only with the code that saved it"
        )
    for name, value in own.items():
        if isinstance(value, torch.nn.Parameter):
            model.part.set_weight(value, saved[name])
        elif isinstance(value, torch.Tensor):
            value.copy_(saved[name])


def _put_optimizers(parts: Sequence[ZeroEngine], states: Sequence[Mapping[str, Any]]) -> None:
    check_count("optimizers", parts, states)
    for part, saved in zip(parts, states, strict=True):
        part.set_states(saved["state"])
        for group, options in zip(part.optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({key: value for key, value in options.items() if key != "params"})


def _put_gradients(
    path: Path, state: Mapping[str, Any], models: Sequence[WrappedModel], parts: Sequence[ZeroEngine]
) -> None:
    whole = {
        f"{number}.{name}": gradient
        for number, gradients in enumerate(state.get("gradients", ()))
        for name, gradient in gradients.items()
    }
    sharded, file = (path / SHARD_DIRECTORY).is_dir(), _own_file(path)
    own = load_torch_file(file, trust=False) if file.is_file() else [{} for _ in parts]
    names = _names(models)
    for part, exact in zip(parts, own, strict=True):
        saved = {weight: whole[names[weight]] for weight in part.parameters if names[weight] in whole}
        if part.stage < 2:
            saved |= {weight: exact[names[weight]] for weight in saved if names[weight] in exact}
        elif not sharded:
            saved = {weight: mean_over_slots(gradient.to(weight.device)) for weight, gradient in saved.items()}
        part.gradients.put(saved)


def _put_values(path: Path, parts: Sequence[ZeroEngine]) -> None:
    for part, values in zip(parts, read_shard_values(path, _ENGINES) or (), strict=False):
        part.set_values(values)


def _own_file(path: Path) -> Path:
    """Return the file with this slot's own gradients, used on the same number of slots. Others use the mean."""
    return path / SHARD_DIRECTORY / f"gradients_{dist.get_rank()}_of_{dist.get_world_size()}.pth"


def _named(
    gradients: Mapping[torch.nn.Parameter, torch.Tensor], names: Mapping[torch.Tensor, str]
) -> dict[str, torch.Tensor]:
    return {names[parameter]: gradient for parameter, gradient in gradients.items()}
