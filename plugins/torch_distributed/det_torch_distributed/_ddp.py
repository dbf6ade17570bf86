"""Adapter with which each slot has whole models of a `PyTorchTrial` and exchanges gradients with the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend
from det_torch.process_group import ProcessGroup, broadcast_tensors
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from det_core.errors import InvalidTrial
from det_torch_distributed._options import TorchDistributedOptions

_PARAMETERS = inspect.signature(DistributedDataParallel).parameters
_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _PARAMETERS else "broadcast_buffers"  # its former name
"""Name of DDP's option. Off by default, because sharing buffers before every pass costs a broadcast and breaks losses
that need two passes."""


class _Replica(DistributedDataParallel):
    """DDP replica that a trial may freeze temporarily, as in adversarial training, and whose buckets never change.

    A forward pass that no backward pass follows would leave DDP waiting for gradients, and it would exchange those of
    the next batch even if they only add up.

    After the first backward pass DDP reorders its buckets. The position of an element decides in which order a ring of
    three or more slots sums it up, so the first batch of a resumed run would be rounded differently.
    """

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        super().__init__(module, **options)
        # Build the final buckets now, from all parameters in their order. With find_unused_parameters DDP never
        # rebuilds its buckets, and this does nothing.
        self.reducer._push_all_rebuilt_params()
        self.reducer._rebuild_buckets()

    def _build_params_for_reducer(self) -> tuple[list[torch.nn.Parameter], list[bool]]:
        parameters, sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        if self.find_unused_parameters:
            return parameters, sparse
        return parameters[::-1], sparse[::-1]  # in the order of backward passes, so that communication starts early

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is exchanged, because the number of validation batches may differ between slots.
        trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.module.parameters())
        forward = super().forward if trains else self.module
        return forward(*inputs, **kwargs)


class DDPBackend(TorchBackend):
    """DistributedDataParallel over the script's process group, or over a new one if the script has not made any."""

    def __init__(self, context: PyTorchTrialContext, options: TorchDistributedOptions) -> None:
        self._device = context.device
        if options.sync_batch_norm and self._device.type == "cpu":
            raise InvalidTrial(
                "distributed.sync_batch_norm needs GPUs, but this slot trains on the CPU; remove it, or use a layer "
                "that does not compute over the batch, such as torch.nn.GroupNorm"
            )
        self._options = options
        self._models: list[torch.nn.Module] = []
        self._replicas: list[DistributedDataParallel] = []
        self._compressed: set[DistributedDataParallel] = set()
        self._exchanged: set[torch.Tensor] = set()
        self._unexchanged: dict[torch.optim.Optimizer, tuple[int, list[torch.Tensor]]] = {}
        """Number of each optimizer's parameters, and those whose gradients no replica exchanges, usually none."""
        self._group = ProcessGroup(context.device)

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        self._models.append(model)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # DDP refuses models without gradients to exchange
        if self._options.sync_batch_norm:
            convert: Callable[[torch.nn.Module], torch.nn.Module] = torch.nn.SyncBatchNorm.convert_sync_batchnorm
            model = convert(model)  # the result has the same parameters and buffers
        replica = _Replica(
            model,
            device_ids=[self._device] if self._device.type == "cuda" else None,
            find_unused_parameters=self._options.find_unused_parameters,
            **{_BUFFERS: self._options.broadcast_buffers},
        )
        self._replicas.append(replica)
        self._exchanged.update(parameter for parameter in model.parameters() if parameter.requires_grad)
        return replica

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        if fp16_compression:
            trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            for replica in self._replicas:
                if replica not in self._compressed and any(id(weight) in trained for weight in replica.parameters()):
                    replica.register_comm_hook(None, fp16_compress_hook)
                    self._compressed.add(replica)
        return optimizer

    def begin(self) -> None:
        broadcast_tensors(weight.detach() for model in self._models for weight in model.parameters())
        self.share_buffers()

    def batch(self, *, updates: bool) -> AbstractContextManager[Any]:
        return nullcontext() if updates else self._without_exchange()

    @contextmanager
    def _without_exchange(self) -> Iterator[None]:
        with ExitStack() as stack:
            for replica in self._replicas:
                stack.enter_context(replica.no_sync())
            yield

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        count, kept = self._unexchanged.get(optimizer, (0, []))
        if count != sum(len(group["params"]) for group in optimizer.param_groups):
            kept = self._find_unexchanged(optimizer)
        for weight in kept:
            if weight.grad is not None:
                raise InvalidTrial(
                    f"{type(optimizer).__name__} trains a parameter of shape {tuple(weight.shape)} whose gradients "
                    "slots do not exchange, so its values would drift apart: no wrapped model has it, or it was "
                    "frozen when wrap_model() was called. Make it part of a module that you wrap, and freeze "
                    "parameters only after wrap_model(), with `distributed: {find_unused_parameters: true}`"
                )
        run()

    def _find_unexchanged(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        weights: list[torch.Tensor] = [weight for group in optimizer.param_groups for weight in group["params"]]
        kept = [weight for weight in weights if weight not in self._exchanged]
        self._unexchanged[optimizer] = len(weights), kept
        return kept

    def share_buffers(self) -> None:
        broadcast_tensors(buffer for model in self._models for buffer in model.buffers())

    def close(self) -> None:
        self._group.close()
