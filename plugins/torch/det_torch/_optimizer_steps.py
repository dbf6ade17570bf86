"""Optimizer steps and automatic mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from det_core.errors import InvalidTrial

ClipGrads: TypeAlias = Callable[[Iterator[torch.nn.Parameter]], Any]
"""Function that clips the gradients of parameters in place."""

_DTYPES = {"cuda": torch.float16}
"""Device type -> autocast data type. Other devices use bfloat16, which needs no loss scaling."""


def optimizer_parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    """Iterate over all parameters of an optimizer."""
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def run_optimizer_step(
    optimizer: torch.optim.Optimizer, divisor: int, clip_grads: ClipGrads | None, scaler: torch.amp.GradScaler | None
) -> None:
    """Divide the gradients of an optimizer, clip them, and step.

    Args:
        optimizer: optimizer to step.
        divisor: number by which gradients are divided, >= 1.
        clip_grads: function that clips the gradients of the parameters that it gets, or None.
        scaler: scaler through which the optimizer steps, or None to step it directly.
    """
    if divisor > 1 and (
        gradients := [weight.grad for weight in optimizer_parameters(optimizer) if weight.grad is not None]
    ):
        torch._foreach_div_(gradients, divisor)
    if clip_grads:
        clip_grads(optimizer_parameters(optimizer))
    if scaler and _has_gradient(optimizer):  # a scaler raises an error if there is no gradient
        scaler.step(optimizer)
    else:
        optimizer.step()


def _has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    return any(weight.grad is not None for weight in optimizer_parameters(optimizer))


def wrong_scaler(given: Any, wrapped: torch.amp.GradScaler | None) -> InvalidTrial:
    """Return the error for a ``scaler`` argument of ``step_optimizer`` that is not the wrapped scaler.

    Args:
        given: the argument.
        wrapped: the scaler that the trial wrapped, or None if it wrapped none.
    """
    if wrapped is None:
        return InvalidTrial(
            f"step_optimizer() was given scaler={given!r}, which is not wrapped; call wrap_scaler first, or remove "
            "the argument if the config or experimental.use_amp() sets mixed precision"
        )
    return InvalidTrial(
        f"step_optimizer() was given scaler={given!r}, but the trial wrapped a scaler, so the gradients are scaled; "
        "pass what wrap_scaler() returned"
    )


class MixedPrecision:
    """Automatic mixed precision for a trial whose weights stay float32. With float16 the loss is scaled.

    Args:
        device: device on which the trial trains.
    """

    def __init__(self, device: torch.device) -> None:
        dtype = _DTYPES.get(device.type, torch.bfloat16)
        self.autocast = torch.autocast(device.type, dtype)
        """Autocast context for forward passes. It is entered once per batch and never nested."""
        self.scaler = torch.amp.GradScaler(device.type) if dtype is torch.float16 else None
        # Backward passes and optimizer steps run without autocast.
        self._outside = torch.autocast(device.type, enabled=False)
        self._stepped: set[torch.optim.Optimizer] = set()

    def backward(self, loss: torch.Tensor, *arguments: Any) -> None:
        """Call ``loss.backward(*arguments)`` on the scaled loss."""
        with self._outside:
            scaled = self.scaler.scale(loss) if self.scaler else loss
            scaled.backward(*arguments)  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer, divisor: int, clip_grads: ClipGrads | None) -> None:
        """Step an optimizer as `run_optimizer_step` does, with unscaled gradients.

        The step is skipped if a gradient is infinite or NaN.

        Args:
            optimizer: optimizer to step.
            divisor: number by which gradients are divided, >= 1.
            clip_grads: function that clips the gradients of the parameters that it gets, or None.
        """
        with self._outside:
            self._unscale(optimizer)
            run_optimizer_step(optimizer, divisor, clip_grads, self.scaler)
        # The weights have changed, and a forward pass may follow within the same autocast.
        torch.clear_autocast_cache()

    def update_scale(self) -> None:
        """Adapt the loss scale to the steps since the last call. Must be called once per batch."""
        if self.scaler and self._stepped:
            self.scaler.update()
            self._stepped.clear()

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        if not (self.scaler and _has_gradient(optimizer)):
            return
        if optimizer in self._stepped:
            # A scaler allows a second step within a batch only after an update. This update keeps the scale, because
            # optimizers that have not stepped yet may hold gradients that were scaled with it.
            self.scaler.update(self.scaler.get_scale())
            self._stepped.clear()
        self.scaler.unscale_(optimizer)
        self._stepped.add(optimizer)
