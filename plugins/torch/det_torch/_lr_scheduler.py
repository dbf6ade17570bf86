"""Learning rate schedulers that det steps and saves in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from det_core.errors import InvalidTrial


class LRScheduler:
    """PyTorch learning rate scheduler with a rule for when to step it. Checkpoints include its state.

    Args:
        scheduler: scheduler of an optimizer of the trial.
        step_mode: when the scheduler steps. It must be MANUAL_STEP for `ReduceLROnPlateau`, which needs a metric.
        frequency: number of epochs, batches or optimizer steps, depending on the mode, per step of the
            scheduler, >= 1.

    Raises:
        InvalidTrial: an argument has the wrong type or is out of range.
    """

    class StepMode(Enum):
        """Times at which det calls ``scheduler.step()``, without arguments and right after the optimizer stepped.

        With ``aggregation_frequency`` n, the optimizer steps at every n-th batch, and the scheduler then makes all
        steps that became due since the last one. With ``frequency`` f, it steps at every f-th of the mode's times,
        counted since the trial began.
        """

        STEP_EVERY_EPOCH = "STEP_EVERY_EPOCH"
        """Once per epoch, at the last optimizer step within it."""
        STEP_EVERY_BATCH = "STEP_EVERY_BATCH"
        """Once per batch."""
        STEP_EVERY_OPTIMIZER_STEP = "STEP_EVERY_OPTIMIZER_STEP"
        """Once per optimizer step, which is the same as per batch unless gradients are aggregated."""
        MANUAL_STEP = "MANUAL_STEP"
        """Never by det. The trial calls `step` in ``train_batch``, with any arguments."""

    def __init__(self, scheduler: TorchScheduler, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(scheduler, TorchScheduler):
            raise InvalidTrial(f"LRScheduler wraps {scheduler!r}; expected a torch.optim.lr_scheduler.LRScheduler")
        if not isinstance(step_mode, LRScheduler.StepMode):
            modes = ", ".join(mode.name for mode in LRScheduler.StepMode)
            raise InvalidTrial(f"step_mode is {step_mode!r}; expected one of LRScheduler.StepMode: {modes}")
        if isinstance(scheduler, ReduceLROnPlateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise InvalidTrial(
                f"ReduceLROnPlateau has step_mode {step_mode.name} but its step() needs a metric; use MANUAL_STEP "
                "and call step(metric) yourself"
            )
        if not isinstance(frequency, int) or frequency < 1:
            raise InvalidTrial(f"the frequency of an LRScheduler is {frequency!r}; expected an integer of at least 1")
        self._scheduler = scheduler
        self._mode = step_mode
        self._frequency = frequency
        self._occasions = _OCCASIONS.get(step_mode)
        self._clocks = _clocks(scheduler)
        self._last_seen = self._seen()

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of every parameter group."""
        return [float(lr) for lr in self._scheduler.get_last_lr()]

    def get_lr(self) -> list[float]:
        """Return the current learning rate of every parameter group, like `get_last_lr`, whose old name this is.

        It does not call torch's ``get_lr``, which is wrong outside of ``step`` in current releases.
        """
        return self.get_last_lr()

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler.

        Args:
            args: positional arguments of the scheduler's own ``step``.
            kwargs: its keyword arguments.

        Raises:
            InvalidTrial: the mode is not MANUAL_STEP, so det steps the scheduler.
        """
        if self._mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise InvalidTrial(
                f"step() was called on an LRScheduler with step_mode {self._mode.name}, which det steps itself; "
                "remove the call or use MANUAL_STEP"
            )
        self._scheduler.step(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped scheduler."""
        return self._scheduler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self._scheduler.load_state_dict(state_dict)
        self._last_seen = self._seen()

    def _after_update(self, batch_idx: int, aggregation: int, epoch_len: int | None) -> None:
        """Make the scheduler steps that are due after a step of the optimizer.

        Args:
            batch_idx: number of the batch after which the optimizer stepped, from 0.
            aggregation: number of batches whose gradients the optimizer aggregated.
            epoch_len: number of batches per epoch, or None if unknown.

        Raises:
            InvalidTrial: the mode is STEP_EVERY_EPOCH, but the length of an epoch is unknown, or user code stepped a
                scheduler that det steps.
        """
        if self._occasions is None:
            return
        if epoch_len is None and self._mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            raise InvalidTrial(
                "an LRScheduler has step_mode STEP_EVERY_EPOCH, but the training data has no length and so no epochs; "
                "use STEP_EVERY_BATCH with a frequency, or give the dataset a __len__"
            )
        done = batch_idx + 1
        before = self._occasions(done - aggregation, aggregation, epoch_len or 0)
        now = self._occasions(done, aggregation, epoch_len or 0)
        if count := now // self._frequency - before // self._frequency:
            self._step(count)

    def _ends_after(
        self, length: int, *, trained: int, aggregation: int, epoch_len: int | None
    ) -> Iterator[tuple[int, str]]:
        """Yield the ends of schedules that do not end earlier than a training, as a warm-up does.

        Args:
            length: number of batches of the whole training.
            trained: number of batches that were trained.
            aggregation: number of batches per step of the optimizer.
            epoch_len: number of batches per epoch, or None if unknown.

        Yields:
            The number of batches after which a schedule ends, and what happens then. Nothing if the number is unknown.
        """
        seen = max(self._seen(), default=0)
        batches = {
            LRScheduler.StepMode.STEP_EVERY_EPOCH: (epoch_len or 0) * self._frequency,
            LRScheduler.StepMode.STEP_EVERY_BATCH: self._frequency,
            LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP: aggregation * self._frequency,
            LRScheduler.StepMode.MANUAL_STEP: trained / seen if seen else 0,  # the trial probably goes on at this rate
        }[self._mode]
        for number, text in _schedule_ends(self._scheduler):
            if batches and number >= length // batches:
                yield round(number * batches), text

    def _seen(self) -> list[int]:
        """Return the step counters of the wrapped scheduler."""
        return [clock.last_epoch for clock in self._clocks]

    def _step(self, count: int) -> None:
        if self._seen() != self._last_seen:
            raise InvalidTrial(
                f"the scheduler inside an LRScheduler with step_mode {self._mode.name} was stepped outside of det; "
                "remove the call of its step(), or use MANUAL_STEP"
            )
        for _ in range(count):
            self._scheduler.step()
        self._last_seen = self._seen()


def _clocks(scheduler: Any) -> list[Any]:
    """Return a scheduler and its component schedulers, without those that have no step counter."""
    own = [scheduler] if hasattr(scheduler, "last_epoch") else []
    return own + [clock for part in getattr(scheduler, "_schedulers", ()) for clock in _clocks(part)]


def _schedule_ends(scheduler: Any) -> Iterator[tuple[int, str]]:
    """Yield the number of steps after which a scheduler or a component of it has ended, and its description."""
    kind = type(scheduler)
    if kind in _ENDS:
        name, then = _ENDS[kind]
        number = getattr(scheduler, name)
        yield number, f"{kind.__name__} has {name}={number}, which ends before: {then}"
    parts, first = getattr(scheduler, "_schedulers", ()), 0
    if milestones := getattr(scheduler, "_milestones", ()):  # only the last part is in use from then on
        parts, first = parts[-1:], milestones[-1]
    for part in parts:
        yield from ((first + number, text) for number, text in _schedule_ends(part))


_ENDS: dict[type, tuple[str, str]] = {
    lr_scheduler.OneCycleLR: ("total_steps", "the next step then fails"),
    lr_scheduler.CosineAnnealingLR: ("T_max", "the learning rate then rises again"),
    lr_scheduler.LinearLR: ("total_iters", "the learning rate then stays as it is"),
    lr_scheduler.PolynomialLR: ("total_iters", "the learning rate is then 0"),
}
"""Schedulers that are made for a number of steps -> attribute with that number, and what happens afterwards."""
_OCCASIONS: dict[LRScheduler.StepMode, Callable[[int, int, int], int]] = {
    # A step of the optimizer is the last one within an epoch if the next step falls into another epoch.
    LRScheduler.StepMode.STEP_EVERY_EPOCH: lambda batches, aggregation, epoch_len: (
        (batches + aggregation - 1) // epoch_len
    ),
    LRScheduler.StepMode.STEP_EVERY_BATCH: lambda batches, aggregation, epoch_len: batches,
    LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP: lambda batches, aggregation, epoch_len: batches // aggregation,
}
"""Step mode -> function that returns the number of times at which the scheduler could step so far.

Its arguments are the numbers of trained batches, of aggregated batches and of batches per epoch."""
