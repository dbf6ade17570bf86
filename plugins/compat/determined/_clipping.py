"""Callbacks that clip gradients."""

from __future__ import annotations

from typing import Any

import torch
from det_torch import PyTorchCallback

__all__ = ["ClipGradsL2Norm", "ClipGradsL2Value"]


class ClipGradsL2Norm(PyTorchCallback):
    """Callback that clips the norm of all gradients together.

    Args:
        clip_value: largest norm.
    """

    def __init__(self, clip_value: float) -> None:
        self._clip_value = clip_value

    def on_before_optimizer_step(self, parameters: list[Any]) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, self._clip_value)


class ClipGradsL2Value(PyTorchCallback):
    """Callback that clips each element of the gradients.

    Args:
        clip_value: largest absolute value.
    """

    def __init__(self, clip_value: float) -> None:
        self._clip_value = clip_value

    def on_before_optimizer_step(self, parameters: list[Any]) -> None:
        torch.nn.utils.clip_grad_value_(parameters, self._clip_value)
