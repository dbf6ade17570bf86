"""Adapter that trains a PyTorchTrial with one DeepSpeed engine per optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend
from det_torch.process_group import ProcessGroup, broadcast_tensors
from det_torch.sharding import uncompiled_models

from det_core.errors import InvalidExperimentException, InvalidTrial
from det_deepspeed import _ds_config, _zero_checkpoints
from det_deepspeed._options import DeepSpeedOptions
from det_deepspeed._zero_engine import ZeroEngine


class EngineModule(torch.nn.Module):
    """Module that the trial calls. It calls the model directly, or through its engine once there is one."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.module = model
        self.part: ZeroEngine | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (self.part.call if self.part else self.module)(*args, **kwargs)


class DeepSpeedBackend(TorchBackend):
    """Adapter for ZeRO over the process group of torch.distributed, which it creates if necessary.

    Args:
        context: the context of the trial.
        options: the options of the backend.
    """

    sharded = True

    def __init__(self, context: PyTorchTrialContext, options: DeepSpeedOptions) -> None:
        self._context = context
        self._config = _ds_config.read_ds_config(options)
        self._scaling = _ds_config.has_enabled_block(self._config, "fp16")
        self._fronts: list[EngineModule] = []
        self._parts: dict[torch.optim.Optimizer, ZeroEngine] = {}
        self._compression = False
        self._group = ProcessGroup(context.device)

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        self._fronts.append(EngineModule(model))
        return self._fronts[-1]

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        self._compression |= fp16_compression
        return optimizer

    def ready(self) -> None:
        context = self._context
        config = _ds_config.complete_ds_config(
            self._config,
            per_slot=context.get_per_slot_batch_size(),
            slots=context.distributed.size,
            aggregation=context.aggregation_frequency,
            compression=self._compression,
            device=context.device.type,
        )
        self._check()
        fronts = [self._front_of(optimizer) for optimizer in context.optimizers]
        if len(set(fronts)) < len(fronts):
            raise InvalidTrial(
                "two wrapped optimizers train the same wrapped model; DeepSpeed needs one optimizer per model"
            )
        for front, optimizer in zip(fronts, context.optimizers, strict=True):
            front.part = self._parts[optimizer] = ZeroEngine(front.module, optimizer, config)

    def restore(self, path: Path, state: Mapping[str, Any], *, continues: bool) -> None:
        with self._models() as models:
            _zero_checkpoints.restore_zero_checkpoint(
                path, state, models, list(self._parts.values()), continues=continues
            )

    def save(self, path: Path) -> None:
        with self._models() as models:
            _zero_checkpoints.save_zero_checkpoint(path, models, list(self._parts.values()))

    def begin(self) -> None:
        broadcast_tensors(weight.detach() for front in self._fronts if not front.part for weight in front.parameters())
        self.share_buffers()

    def backward(self, loss: torch.Tensor, run: Callable[[], Any]) -> None:
        with ExitStack() as stack:
            for part in self._parts.values():
                stack.enter_context(part.backward())
            if self._scaling:
                (engine,) = (part.engine for part in self._parts.values())
                hook = loss.register_hook(lambda gradient: gradient * engine.optimizer.loss_scale)  # type: ignore[no-untyped-call]
                stack.callback(hook.remove)
            run()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        if clips:
            raise InvalidTrial(
                "step_optimizer() was given clip_grads, but with DeepSpeed no slot has whole gradients to clip; "
                "remove it, and set gradient_clipping in ds_config to the maximum norm"
            )
        self._parts[optimizer].step(self._context.gradient_divisor(optimizer))

    def share_buffers(self) -> None:
        broadcast_tensors(buffer for front in self._fronts for buffer in front.buffers())

    def evaluation(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        for part in self._parts.values():
            stack.enter_context(part.gathered())
        return stack

    def close(self) -> None:
        self._group.close()

    @contextmanager
    def _models(self) -> Iterator[list[_zero_checkpoints.WrappedModel]]:
        with ExitStack() as stack:
            bare = stack.enter_context(uncompiled_models([front.module for front in self._fronts]))
            for part in self._parts.values():
                stack.enter_context(part.thawed())
            yield [
                _zero_checkpoints.WrappedModel(module, front.part)
                for module, front in zip(bare, self._fronts, strict=True)
            ]

    def _check(self) -> None:
        scales, reduced = self._context.scaler is not None, _ds_config.has_enabled_block(self._config, "bf16", "fp16")
        if scales or (self._context.mixed_precision and reduced):
            raise InvalidExperimentException(
                "optimizations.mixed_precision (or use_amp(), or wrap_scaler()) cannot be combined with DeepSpeed's "
                "mixed precision; remove it, and enable bf16 or fp16 in ds_config"
            )
        if self._scaling and len(self._context.optimizers) > 1:
            raise InvalidTrial("fp16 in ds_config supports only one optimizer, but the trial has several; use bf16")
        own = [name for name in ("optimizer", "scheduler") if self._config.get(name)]
        if own and self._context.lr_schedulers:
            raise InvalidTrial(
                f"the trial wraps a learning rate scheduler, but ds_config has its own {' and '.join(own)}; "
                "remove either"
            )

    def _front_of(self, optimizer: torch.optim.Optimizer) -> EngineModule:
        trained = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        fronts = [front for front in self._fronts if any(id(weight) in trained for weight in front.parameters())]
        if len(fronts) != 1:
            raise InvalidTrial(
                f"a wrapped {type(optimizer).__name__} trains parameters of {len(fronts)} wrapped models; "
                "with DeepSpeed, each optimizer must train exactly one wrapped model"
            )
        return fronts[0]
