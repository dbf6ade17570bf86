"""What a `PyTorchTrial` may ask for and must hand over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler

from det_core.errors import InvalidTrial
from det_core.trial import TrialContext
from det_torch import _data
from det_torch._lr_scheduler import LRScheduler

_Model = TypeVar("_Model", bound=torch.nn.Module)
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)
ClipGrads = Callable[[Iterator[torch.nn.Parameter]], Any]


class PyTorchTrialContext(TrialContext):
    """The context of a `PyTorchTrial`. What is wrapped is trained, checkpointed and restored.

    Without a training loop, as after `from_config`, it stands at batch 0 of an epoch without end.
    """

    def __init__(self, **place: Any) -> None:
        super().__init__(**place)
        self.models: list[torch.nn.Module] = []
        """Everything that `wrap_model` was given, in that order."""
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.device = self._choose_device()
        """Where this slot trains."""
        optimizations = self.config.optimizations
        if optimizations.mixed_precision != "O0":
            raise InvalidTrial(
                f"optimizations.mixed_precision is {optimizations.mixed_precision}; mixed precision comes with a "
                "later release, use O0 (or torch.autocast in your train_batch)"
            )
        self._aggregation = optimizations.aggregation_frequency
        self._average_gradients = optimizations.average_aggregated_gradients
        self._epoch_len = sys.maxsize
        self._batch_idx = 0
        self._initial_batch = 0

    def wrap_model(self, model: _Model) -> _Model:
        """Hand over a model: it moves to the device, and checkpoints will have it.

        Returns:
            The model to use from now on.
        """
        if not isinstance(model, torch.nn.Module):
            raise InvalidTrial(f"wrap_model() was given {model!r}; expected a torch.nn.Module")
        model = model.to(self.device)
        self.models.append(model)
        return model

    def wrap_optimizer(self, optimizer: _Optimizer) -> _Optimizer:
        """Hand over an optimizer over parameters of wrapped models.

        Returns:
            The optimizer to pass to `step_optimizer`.
        """
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidTrial(f"wrap_optimizer() was given {optimizer!r}; expected a torch.optim.Optimizer")
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(self, scheduler: TorchScheduler, step_mode: LRScheduler.StepMode) -> LRScheduler:
        """Hand over a learning rate scheduler of a wrapped optimizer; arguments as for `LRScheduler`."""
        wrapped = LRScheduler(scheduler, step_mode)
        self.lr_schedulers.append(wrapped)
        return wrapped

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Add the loss's gradients to those of the parameters; arguments as for ``torch.Tensor.backward``."""
        loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self, optimizer: torch.optim.Optimizer, clip_grads: ClipGrads | None = None, auto_zero_grads: bool = True
    ) -> None:
        """Step the optimizer, at every ``optimizations.aggregation_frequency``-th batch; call it in every one.

        Args:
            optimizer: as from `wrap_optimizer`.
            clip_grads: called with the parameters before the step, after gradients were averaged over the
                aggregated batches (``optimizations.average_aggregated_gradients``).
            auto_zero_grads: set the gradients to zero afterwards. With False you do, which
                excludes aggregation.

        Raises:
            InvalidTrial: the optimizer was not wrapped, or aggregation without ``auto_zero_grads``.
        """
        if optimizer not in self.optimizers:
            raise InvalidTrial("step_optimizer() was given an optimizer that is not wrapped; call wrap_optimizer first")
        if self._aggregation > 1 and not auto_zero_grads:
            raise InvalidTrial(
                f"optimizations.aggregation_frequency is {self._aggregation}, which needs step_optimizer() to set "
                "the gradients to zero; drop auto_zero_grads=False, or aggregate by yourself"
            )
        if not self._updates():
            return
        if self._aggregation > 1 and self._average_gradients:
            for parameter in _parameters(optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(self._aggregation)
        if clip_grads:
            clip_grads(_parameters(optimizer))
        optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def to_device(self, data: Any) -> Any:
        """Move tensors, and what else has a method ``to``, within nested dicts, lists and tuples to the device.

        Numeric ``np.ndarray`` become tensors; everything else is left as it is.
        """
        return _data.to_device(data, self.device)

    def current_train_batch(self) -> int:
        """Number of batches that this slot trained before the present one, since the trial began."""
        return self._batch_idx

    def current_train_epoch(self) -> int:
        """Number of the present epoch, from 0."""
        return self._batch_idx // self._epoch_len

    def is_epoch_start(self) -> bool:
        """Whether the present batch is the first of its epoch."""
        return self._batch_idx % self._epoch_len == 0

    def is_epoch_end(self) -> bool:
        """Whether the present batch is the last of its epoch."""
        return (self._batch_idx + 1) % self._epoch_len == 0

    def get_initial_batch(self) -> int:
        """The batch at which this run of the trial began: 0, or where its checkpoint was."""
        return self._initial_batch

    def _choose_device(self) -> torch.device:
        if not torch.cuda.is_available() or self.config.resources.slots_per_trial == 0:
            return torch.device("cpu")
        device = torch.device("cuda", self.distributed.local_rank)
        torch.cuda.set_device(device)
        return device

    def _updates(self) -> bool:
        """Whether optimizers step at the present batch."""
        return (self._batch_idx + 1) % self._aggregation == 0

    def _step_lr_schedulers(self) -> None:
        if self.lr_schedulers and self._updates():
            for scheduler in self.lr_schedulers:
                scheduler._after_update(self._batch_idx, self._aggregation, self._epoch_len)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
