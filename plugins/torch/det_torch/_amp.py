"""Steps of optimizers, and the mixed precision that det drives around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from det_core.errors import InvalidTrial

ClipGrads: TypeAlias = Callable[[Iterator[torch.nn.Parameter]], Any]

_DTYPES = {"cuda": torch.float16}
"""Device type -> what autocast computes in there; elsewhere bfloat16, which needs no scaling of the loss."""


def parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    """All that the optimizer trains."""
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def step(
    optimizer: torch.optim.Optimizer, divisor: int, clip_grads: ClipGrads | None, scaler: torch.amp.GradScaler | None
) -> None:
    """Divide the gradients, clip them and step, through the scaler if there is one."""
    if divisor > 1 and (gradients := [weight.grad for weight in parameters(optimizer) if weight.grad is not None]):
        torch._foreach_div_(gradients, divisor)
    if clip_grads:
        clip_grads(parameters(optimizer))
    if scaler and _has_gradient(optimizer):  # a scaler raises if there is none
        scaler.step(optimizer)
    else:
        optimizer.step()


def _has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    return any(weight.grad is not None for weight in parameters(optimizer))


def wrong_scaler(given: Any, wrapped: torch.amp.GradScaler | None) -> InvalidTrial:
    """The error about what ``step_optimizer`` was given, if that is not the wrapped scaler, or None without one."""
    if wrapped is None:
        return InvalidTrial(
            f"step_optimizer() was given scaler={given!r}, which is not wrapped; call wrap_scaler first, or drop it if "
            "mixed precision is set by the config or by experimental.use_amp()"
        )
    return InvalidTrial(
        f"step_optimizer() was given scaler={given!r}, but the trial wrapped a scaler, so the gradients are scaled; "
        "pass what wrap_scaler() returned"
    )


class MixedPrecision:
    """Autocast over the code of a trial whose weights stay float32, with a scaled loss where it is float16.

    Args:
        device: where the trial trains.
    """

    def __init__(self, device: torch.device) -> None:
        dtype = _DTYPES.get(device.type, torch.bfloat16)
        self.autocast = torch.autocast(device.type, dtype)
        """For forward passes: entered once per batch, never within itself."""
        self.scaler = torch.amp.GradScaler(device.type) if dtype is torch.float16 else None
        # Backward passes and steps compute as they would without mixed precision.
        self._outside = torch.autocast(device.type, enabled=False)
        self._stepped: set[torch.optim.Optimizer] = set()

    def backward(self, loss: torch.Tensor, *arguments: Any) -> None:
        """``loss.backward(*arguments)``, scaled."""
        with self._outside:
            scaled = self.scaler.scale(loss) if self.scaler else loss
            scaled.backward(*arguments)  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer, divisor: int, clip_grads: ClipGrads | None) -> None:
        """As `step`, with gradients that are those of the loss itself; none if one of them is infinite or NaN."""
        with self._outside:
            self._unscale(optimizer)
            step(optimizer, divisor, clip_grads, self.scaler)
        # The weights have changed, and a forward pass may follow within the same autocast.
        torch.clear_autocast_cache()

    def update_scale(self) -> None:
        """Adapt the scale to the steps since the last call; once per batch."""
        if self.scaler and self._stepped:
            self.scaler.update()
            self._stepped.clear()

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if not (self.scaler and _has_gradient(optimizer)):
            return
        if optimizer in self._stepped:
            # A scaler allows a second step in a batch after an update only. This one keeps the scale, which gradients
            # of other optimizers, whose steps are still to come, may have been multiplied with.
            self.scaler.update(self.scaler.get_scale())
            self._stepped.clear()
        self.scaler.unscale_(optimizer)
        self._stepped.add(optimizer)
