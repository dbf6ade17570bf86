"""Adapter that spreads the models and optimizers of a `PyTorchTrial` over the slots."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend
from det_torch.process_group import ProcessGroup, broadcast_tensors
from det_torch.sharding import (
    SHARD_DIRECTORY,
    read_sharded_state,
    restore_models_and_optimizers,
    uncompiled_models,
    write_shards,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from det_core.errors import InvalidTrial
from det_torch_distributed._fsdp_units import choose_fsdp_units
from det_torch_distributed._independent_passes import IndependentPasses
from det_torch_distributed._options import TorchDistributedOptions
from det_torch_distributed._tensor_shards import empty_shard_like, shard_state

_log = logging.getLogger("det.torch")


class FSDPBackend(TorchBackend):
    """FSDP2 over the script's process group, or over a new one if the script has not made any."""

    sharded = True

    def __init__(self, context: PyTorchTrialContext, options: TorchDistributedOptions) -> None:
        self._context = context
        self._unit_names = options.units
        self._classes: set[str] = set()
        """Class names of all modules, recorded before FSDP replaces the classes."""
        self._policy = MixedPrecisionPolicy(
            param_dtype=_dtype(options.param_dtype), reduce_dtype=_dtype(options.reduce_dtype)
        )
        self._group = ProcessGroup(context.device)
        self._mesh = init_device_mesh(context.device.type, (dist.get_world_size(),))
        self._roots: list[FSDPModule] = []
        self._passes = IndependentPasses(context.distributed)

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        with uncompiled_models([model]) as (bare,):
            self._classes |= {type(module).__name__ for module in bare.modules()}
            broadcast_tensors(weight.detach() for weight in bare.parameters())
            sharded = [
                fully_shard(unit, mesh=self._mesh, mp_policy=self._policy)
                for unit in choose_fsdp_units(bare, self._unit_names)
            ]
        # By default FSDP prefetches in the reverse order of all earlier forward passes, including those of validations,
        # whose number may differ between slots. An empty list means this default, so the first unit names itself.
        for unit, before in zip(sharded, sharded[:1] + sharded, strict=False):
            unit.set_modules_to_backward_prefetch([before])
        self._roots.append(sharded[-1])
        self._passes.add(sharded[-1], sharded[:-1])
        return model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        if fp16_compression:
            _log.warning(
                "gradients are not compressed with `sharding: fsdp`; to exchange them as float16, "
                "set `reduce_dtype: float16` as well"
            )
        return optimizer

    def ready(self) -> None:
        if missing := set(self._unit_names) - self._classes:
            raise InvalidTrial(
                f"distributed.units has {', '.join(sorted(missing))}, which is not the class of a module of the "
                f"trial; the modules have the classes {', '.join(sorted(self._classes))}"
            )
        known = {parameter for model in self._context.models for parameter in model.parameters()}
        for optimizer in self._context.optimizers:
            if any(parameter not in known for group in optimizer.param_groups for parameter in group["params"]):
                raise InvalidTrial(
                    f"{type(optimizer).__name__} trains parameters that no wrapped model has: wrap_model() replaces "
                    "them with `sharding: fsdp`; construct the optimizer from the parameters of the model that "
                    "wrap_model() returned"
                )

    def restore(self, path: Path, state: Mapping[str, Any], *, continues: bool) -> None:
        parts = self._parts()
        if (path / SHARD_DIRECTORY).is_dir():
            saved = read_sharded_state(path, empty=partial(empty_shard_like, parts))
        else:
            saved = shard_state(self._context, state, parts)
        restore_models_and_optimizers(self._context, {**state, **saved}, continues=continues)

    def save(self, path: Path) -> None:
        with uncompiled_models(self._context.models) as models:
            write_shards(path, models, self._context.optimizers)

    def begin(self) -> None:
        self.share_buffers()

    # batch() is not overridden, so gradients are exchanged in all batches. Otherwise FSDP would keep whole gradients
    # where no checkpoint finds them.

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        run()
        # After a forward pass without a backward pass a root is still gathered, with weights from before the step.
        for root in self._roots:
            root.reshard()

    def share_buffers(self) -> None:
        broadcast_tensors(buffer for model in self._context.models for buffer in model.buffers())

    def evaluation(self) -> AbstractContextManager[None]:
        return self._passes.running()

    def close(self) -> None:
        self._group.close()

    def _parts(self) -> dict[str, torch.Tensor]:
        """Return this slot's part of all parameters and buffers, by number of the model and name."""
        with uncompiled_models(self._context.models) as models:
            return {
                f"{number}.{name}": part
                for number, model in enumerate(models)
                for name, part in model.state_dict().items()
            }


def _dtype(name: str | None) -> torch.dtype | None:
    dtype: torch.dtype | None = getattr(torch, name) if name else None
    return dtype
