"""Adapters of broken_backends.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from det_ring_torch import RingTorch


class ChangesGradients(RingTorch):
    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], **keywords: Any) -> None:
        def changed() -> None:
            for weight in weights_of(optimizer):
                weight.grad = self.change(weight.grad)
            run()

        super().step(optimizer, changed, **keywords)

    def change(self, gradient: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Sums(ChangesGradients):
    def change(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * self._slots.size


class AlwaysCompresses(ChangesGradients):
    def change(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.half().float()


class NeverCompresses(RingTorch):
    pass


class StepsAlone(RingTorch):
    def step(self, optimizer: torch.optim.Optimizer, run: Callable[[], Any], **keywords: Any) -> None:
        run()


class KeepsFirstWeights(RingTorch):
    def begin(self) -> None:
        self.share_buffers()


class ForgetsBuffers(RingTorch):
    def share_buffers(self) -> None:
        pass


class ExchangesTwice(RingTorch):
    """Adapter that exchanges gradients again during aggregation."""

    @contextmanager
    def batch(self, *, updates: bool) -> Iterator[None]:
        yield
        for weight in (weight for model in self._models for weight in model.parameters()):
            if not updates and weight.grad is not None:
                weight.grad *= 2


class HangsInTheEnd(RingTorch):
    def close(self) -> None:
        if self._slots.rank == 1:
            time.sleep(1000)


def weights_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]
