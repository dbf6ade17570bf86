"""Callbacks that clip gradients, for trials that define ``build_model``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from det_torch._callback import PyTorchCallback


class ClipGradsL2Norm(PyTorchCallback):
    """Callback that limits the L2 norm of all gradients of the model together.

    It is for trials that define ``build_model``. Others pass ``clip_grads`` to `PyTorchTrialContext.step_optimizer`.

    Args:
        clip_value: maximum of the norm.
    """

    def __init__(self, clip_value: float) -> None:
        self._clip_value = clip_value

    def on_before_optimizer_step(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, self._clip_value)


class ClipGradsL2Value(PyTorchCallback):
    """Callback that limits the absolute value of each gradient, for trials as in `ClipGradsL2Norm`.

    Args:
        clip_value: maximum of the absolute value.
    """

    def __init__(self, clip_value: float) -> None:
        self._clip_value = clip_value

    def on_before_optimizer_step(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        torch.nn.utils.clip_grad_value_(parameters, self._clip_value)
