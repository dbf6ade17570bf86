"""Adapter of Horovod to PyTorchTrial."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import horovod.torch as hvd
import torch
from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend
from horovod.common.exceptions import HorovodInternalError
from pydantic import BaseModel

from det_core.errors import InvalidTrial
from det_horovod import _lifecycle

_EXCHANGED = (torch.float16, torch.float32, torch.float64)
"""Types of gradients that Horovod averages."""

_translate_errors = partial(_lifecycle.translate_horovod_errors, HorovodInternalError)


class HorovodTorch(TorchBackend):
    """Adapter that averages each optimizer's gradients in an `_Exchange`, without replacing models or optimizers."""

    def __init__(self, context: PyTorchTrialContext, options: BaseModel) -> None:
        optimizations = context.get_experiment_config()["optimizations"]
        self._owns = _lifecycle.start_horovod(hvd, optimizations, context.distributed)
        self._models: list[torch.nn.Module] = []
        self._optimizers: list[tuple[torch.optim.Optimizer, Any]] = []
        """Optimizers and the compression of each."""
        self._exchanges: dict[torch.optim.Optimizer, _Exchange] = {}
        self._exchanging = True

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        self._models.append(model)
        return model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer, *, fp16_compression: bool) -> torch.optim.Optimizer:
        self._optimizers.append((optimizer, hvd.Compression.fp16 if fp16_compression else hvd.Compression.none))
        return optimizer

    def ready(self) -> None:
        names = {weight: name for name, weight in self._tensors(torch.nn.Module.named_parameters)}
        for number, (optimizer, compression) in enumerate(self._optimizers):
            self._exchanges[optimizer] = _Exchange(f"optimizer{number}", optimizer, names, compression)

    def begin(self) -> None:
        _broadcast(dict(self._tensors(torch.nn.Module.named_parameters)))
        self.share_buffers()
        for exchange in self._exchanges.values():
            exchange.begin()

    def batch(self, *, updates: bool) -> AbstractContextManager[Any]:
        if updates != self._exchanging:
            self._exchanging = updates
            for exchange in self._exchanges.values():
                exchange.switch(on=updates)
        return nullcontext()

    def backward(self, loss: torch.Tensor, run: Callable[[], Any]) -> None:
        with _translate_errors():
            run()
            if self._exchanging:
                # For all optimizers, because this pass may have added to gradients that others use or the trial zeroes.
                for exchange in self._exchanges.values():
                    exchange.end_pass()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        with _translate_errors():
            self._exchanges[optimizer].finish()  # needed if this batch had no backward pass
        self._exchanges[optimizer].check(optimizer)
        run()

    def share_buffers(self) -> None:
        _broadcast(dict(self._tensors(torch.nn.Module.named_buffers)))

    def close(self) -> None:
        if self._owns:
            _lifecycle.stop_horovod(hvd)

    def _tensors(
        self, named: Callable[[torch.nn.Module], Iterator[tuple[str, torch.Tensor]]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for number, model in enumerate(self._models):
            for name, tensor in named(model):
                yield f"model{number}.{name}", tensor


class _Exchange:
    """Averaging of one optimizer's gradients during backward passes.

    This uses ``hvd.DistributedOptimizer`` around an optimizer that never steps. Around the trial's own optimizer, it
    would rebuild it from its parameter groups alone, and sometimes refuse a valid ``zero_grad``.

    Args:
        name: the unique name of the optimizer, the same on all slots.
        optimizer: the trial's optimizer.
        names: the names of the models' parameters.
        compression: an attribute of ``hvd.Compression``.

    Raises:
        InvalidTrial: a parameter has a type whose gradients Horovod does not average.
    """

    def __init__(
        self, name: str, optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str], compression: Any
    ) -> None:
        self._weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        named = [(f"{name}.{names.get(weight, index)}", weight) for index, weight in enumerate(self._weights)]
        self._names = {weight: name for name, weight in named if weight.requires_grad}
        if compression is hvd.Compression.none:
            self._check_types()
        never_steps = torch.optim.SGD(self._weights, lr=0.0)
        self._horovod = hvd.DistributedOptimizer(never_steps, named, compression)

    def switch(self, *, on: bool) -> None:
        """Turn the exchange on or off. While it is off, backward passes aggregate gradients on this slot."""
        self._horovod.set_backward_passes_per_step(1 if on else sys.maxsize)

    def begin(self) -> None:
        """Treat gradients from a checkpoint as if a backward pass without exchange had computed them on this slot."""
        self._horovod._handles.update({weight: (None, None) for weight in self._names if weight.grad is not None})

    def end_pass(self) -> None:
        """Call `finish` if the backward pass started an exchange. Otherwise, aggregated gradients wait for another."""
        if any(handle is not None for handle, _ in self._horovod._handles.values()):
            self.finish()

    def finish(self) -> None:
        """Wait for all started exchanges, and exchange gradients that were only aggregated before, if there are any."""
        if not self._horovod._handles:  # otherwise zeros would be sent for all parameters
            return
        frozen = [weight for weight in self._weights if weight.grad is None and not weight.requires_grad]
        self._horovod.synchronize()
        for weight in frozen:
            weight.grad = None  # Horovod set zeros, with which momentum and weight decay would change it

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise InvalidTrial if a gradient was not exchanged, because a step with it would make slots diverge."""
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and weight not in self._names:
                    raise InvalidTrial(
                        f"the gradients of a parameter of shape {tuple(weight.shape)} are not exchanged, because it "
                        "was not in its optimizer, or required no gradient, when wrap_optimizer() was called; add it "
                        "before, and freeze it afterwards"
                    )

    def _check_types(self) -> None:
        for weight, name in self._names.items():
            if weight.dtype not in _EXCHANGED:
                raise InvalidTrial(
                    f"{name} is {weight.dtype}, whose gradients Horovod cannot average; keep weights in float32 and "
                    "set optimizations: {mixed_precision: O1}, or optimizations: {gradient_compression: true}"
                )


def _broadcast(tensors: Mapping[str, torch.Tensor]) -> None:
    """Set tensors to the chief's values, sent as bytes because Horovod does not support all types."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items() if tensor.numel()}
    with _translate_errors():
        hvd.broadcast_parameters({name: one.reshape(-1).view(torch.uint8) for name, one in whole.items()}, root_rank=0)
    for name, received in whole.items():
        tensors[name].detach().copy_(received)
