"""State that the training loop and the methods of a context share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from det_torch._metric_reducer import ReducerSet

if TYPE_CHECKING:
    from det_torch._lr_scheduler import LRScheduler
    from det_torch._optimizer_steps import MixedPrecision
    from det_torch._tensorboard import TrialTensorboard


@dataclass
class LoopState:
    """What a trial has registered with its context, and the place of the loop in the data."""

    bare_models: list[torch.nn.Module] = field(default_factory=list)
    """Models that were passed to ``wrap_model``, in the order of the calls. Checkpoints hold their states."""
    reducers: ReducerSet = field(default_factory=ReducerSet)
    """Custom metric reducers of the trial."""
    amp: MixedPrecision | None = None
    """Mixed precision that det handles, or None."""
    wrapped_scaler: torch.amp.GradScaler | None = None
    """Scaler of a trial that implements mixed precision itself, or None."""
    profiler: torch.profiler.profile | None = None
    """Profiler to start, step and stop, or None."""
    tensorboard: TrialTensorboard | None = None
    """TensorBoard files of this process. None without a run."""
    moves_batches: bool = True
    """Whether the loop moves batches to the device."""
    data_as_is: bool = False
    """Whether the trial's loaders skip, shuffle and split batches among slots themselves."""
    batches_per_epoch: int | None = None
    """Number of batches per epoch on this slot. None if unknown."""
    batch: int = 0
    """Number of batches that this slot trained before the current batch, since the trial began."""
    first_batch: int = 0
    """Number of batches that the trial trained before this run."""

    def place(self) -> tuple[int, int]:
        """Return the epoch of the current batch and its index within the epoch. Data without a length is one epoch."""
        return divmod(self.batch, self.batches_per_epoch or sys.maxsize)

    def updates(self, aggregation_frequency: int) -> bool:
        """Return whether optimizers step at the current batch."""
        return (self.batch + 1) % aggregation_frequency == 0

    def end_batch(self, lr_schedulers: Sequence[LRScheduler], aggregation_frequency: int) -> None:
        """Update the loss scale and the learning rate schedulers after ``train_batch``, and count the batch."""
        if self.amp:
            self.amp.update_scale()
        if lr_schedulers and self.updates(aggregation_frequency):
            for scheduler in lr_schedulers:
                scheduler._after_update(self.batch, aggregation_frequency, self.batches_per_epoch)
        self.batch += 1

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context for ``train_batch`` and evaluation, which is autocast if det handles mixed precision."""
        return self.amp.autocast if self.amp else nullcontext()
