"""When learning rates change, and who may change them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from det_torch import LRScheduler
from torch.optim import lr_scheduler

from det_core.errors import InvalidTrial

MODE = LRScheduler.StepMode
EPOCH_LEN = 5


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@pytest.mark.parametrize(
    ("mode", "aggregation", "steps"),
    [
        # Steps taken after each of the first 12 batches, epochs of 5.
        (MODE.STEP_EVERY_BATCH, 1, [1] * 12),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 1, [1] * 12),
        (MODE.STEP_EVERY_EPOCH, 1, [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
        (MODE.MANUAL_STEP, 1, [0] * 12),
        (MODE.STEP_EVERY_BATCH, 3, [0, 0, 3] * 4),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 3, [0, 0, 1] * 4),
        # Batches 2, 5, 8, 11 end a window: 2 is the last of them in epoch 0, 8 in epoch 1, 11 is not in epoch 2.
        (MODE.STEP_EVERY_EPOCH, 3, [0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        # A window longer than an epoch catches up.
        (MODE.STEP_EVERY_EPOCH, 6, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]),
        (MODE.MANUAL_STEP, 3, [0] * 12),
    ],
)
def test_steps(mode: LRScheduler.StepMode, aggregation: int, steps: list[int], make_context: Any) -> None:
    context = make_context(optimizations={"aggregation_frequency": aggregation})
    sgd = context.wrap_optimizer(optimizer())
    scheduler = context.wrap_lr_scheduler(lr_scheduler.ExponentialLR(sgd, 0.5), mode)
    assert context.lr_schedulers == [scheduler]
    context._epoch_len = EPOCH_LEN
    exponent = 0
    for batch, count in enumerate(steps):
        context._batch_idx = batch
        context.step_optimizer(sgd)
        context._step_lr_schedulers()
        exponent += count
        assert scheduler.get_last_lr() == scheduler.get_lr() == [0.5**exponent]


def test_manual_steps_take_arguments() -> None:
    sgd = optimizer()
    scheduler = LRScheduler(lr_scheduler.ReduceLROnPlateau(sgd, patience=0, factor=0.5), MODE.MANUAL_STEP)
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert scheduler.get_last_lr() == [0.5]


@pytest.mark.parametrize("mode", [mode for mode in MODE if mode is not MODE.MANUAL_STEP])
class TestMisuse:
    def test_step_by_the_user(self, mode: LRScheduler.StepMode) -> None:
        scheduler = LRScheduler(lr_scheduler.StepLR(optimizer(), 1), mode)
        with pytest.raises(InvalidTrial, match=f"step_mode {mode.name}, which det steps itself"):
            scheduler.step()

    def test_step_behind_our_back(self, mode: LRScheduler.StepMode) -> None:
        sgd = optimizer()
        raw = lr_scheduler.StepLR(sgd, 1)
        scheduler = LRScheduler(raw, mode)
        sgd.step()
        raw.step()
        with pytest.raises(InvalidTrial, match="stepped by somebody else"):
            scheduler._after_update(EPOCH_LEN - 1, 1, EPOCH_LEN)

    def test_plateau(self, mode: LRScheduler.StepMode) -> None:
        with pytest.raises(InvalidTrial, match=r"ReduceLROnPlateau .* use MANUAL_STEP"):
            LRScheduler(lr_scheduler.ReduceLROnPlateau(optimizer()), mode)


@pytest.mark.parametrize(
    ("scheduler", "mode", "message"),
    [
        (None, MODE.MANUAL_STEP, "LRScheduler wraps None"),
        (
            lr_scheduler.StepLR(optimizer(), 1),
            "every batch",
            "step_mode is 'every batch'; expected .* STEP_EVERY_EPOCH",
        ),
    ],
)
def test_arguments(scheduler: Any, mode: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        LRScheduler(scheduler, mode)


@pytest.mark.parametrize(
    "make",
    [
        lambda sgd: lr_scheduler.StepLR(sgd, 2),
        lambda sgd: lr_scheduler.MultiStepLR(sgd, [1, 3]),
        lambda sgd: lr_scheduler.LambdaLR(sgd, lambda step: 1 / (step + 1)),
        lambda sgd: lr_scheduler.CosineAnnealingWarmRestarts(sgd, 2),
        lambda sgd: lr_scheduler.OneCycleLR(sgd, 1.0, total_steps=20),
        lambda sgd: lr_scheduler.CyclicLR(sgd, 0.1, 1.0, step_size_up=2, cycle_momentum=False),
        lambda sgd: lr_scheduler.SequentialLR(
            sgd, [lr_scheduler.ConstantLR(sgd, 0.1), lr_scheduler.ExponentialLR(sgd, 0.9)], milestones=[2]
        ),
        lambda sgd: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(sgd, 0.1), lr_scheduler.StepLR(sgd, 1)], sgd
        ),
    ],
)
def test_state_goes_through_a_safe_file(make: Any, tmp_path: Any) -> None:
    first, second = optimizer(), optimizer()
    one, two = (LRScheduler(make(sgd), MODE.STEP_EVERY_BATCH) for sgd in (first, second))
    first.step(), second.step()
    for batch in range(3):
        one._after_update(batch, 1, EPOCH_LEN)
    torch.save([first.state_dict(), one.state_dict()], tmp_path / "state")
    states = torch.load(tmp_path / "state", weights_only=True)
    second.load_state_dict(states[0]), two.load_state_dict(states[1])
    for batch in range(3, 6):
        one._after_update(batch, 1, EPOCH_LEN), two._after_update(batch, 1, EPOCH_LEN)
        assert one.get_last_lr() == two.get_last_lr()
