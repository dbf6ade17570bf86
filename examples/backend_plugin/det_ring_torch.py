"""Adapter of a `PyTorchTrial` to the ring. Every slot has the whole model and sends its gradients to all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from det_ring import RingConfig
from det_torch import PyTorchTrialContext
from det_torch.backend import TorchBackend


class RingTorch(TorchBackend):
    def __init__(self, context: PyTorchTrialContext, config: RingConfig) -> None:
        self._slots = context.distributed
        self._models: list[torch.nn.Module] = []

    def wrap_model(self, model: torch.nn.Module) -> torch.nn.Module:
        self._models.append(model)
        return model

    def begin(self) -> None:
        self._share([weight for model in self._models for weight in model.parameters()])
        self.share_buffers()

    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], *, clips: bool) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        trained = [weight for weight in weights if weight.grad is not None]
        gradients = self._slots.allgather([weight.grad.cpu().numpy() for weight in trained])
        for weight, of_slots in zip(trained, zip(*gradients, strict=True), strict=True):
            weight.grad.copy_(torch.from_numpy(np.mean(of_slots, axis=0)))
        run()

    def share_buffers(self) -> None:
        self._share([buffer for model in self._models for buffer in model.buffers()])

    def _share(self, tensors: list[torch.Tensor]) -> None:
        of_chief = self._slots.broadcast([tensor.detach().cpu().numpy() for tensor in tensors])
        for tensor, values in zip(tensors, of_chief, strict=True):
            tensor.detach().copy_(torch.from_numpy(values))
