"""Learning rate schedulers step at the right times, and only in the manual mode by the user."""

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
    ("mode", "frequency", "aggregation", "steps"),
    [
        # Steps taken after each of the first 12 batches, epochs of 5.
        (MODE.STEP_EVERY_BATCH, 1, 1, [1] * 12),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 1, 1, [1] * 12),
        (MODE.STEP_EVERY_EPOCH, 1, 1, [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
        (MODE.MANUAL_STEP, 1, 1, [0] * 12),
        (MODE.STEP_EVERY_BATCH, 1, 3, [0, 0, 3] * 4),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 1, 3, [0, 0, 1] * 4),
        # Batches 2, 5, 8, 11 end a window: 2 is the last of them in epoch 0, 8 in epoch 1, 11 is not in epoch 2.
        (MODE.STEP_EVERY_EPOCH, 1, 3, [0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        # A window longer than an epoch catches up.
        (MODE.STEP_EVERY_EPOCH, 1, 6, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]),
        (MODE.MANUAL_STEP, 1, 3, [0] * 12),
        (MODE.STEP_EVERY_BATCH, 4, 1, [0, 0, 0, 1] * 3),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 5, 1, [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
        (MODE.STEP_EVERY_EPOCH, 2, 1, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]),
        # Batches 1, 3, 5 ... are the second of two, and the windows of 3 have one, two, one, two of them.
        (MODE.STEP_EVERY_BATCH, 2, 3, [0, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 2]),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 2, 3, [0, 0, 0, 0, 0, 1] * 2),
        (MODE.STEP_EVERY_EPOCH, 2, 3, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        (MODE.MANUAL_STEP, 2, 1, [0] * 12),
    ],
)
def test_schedulers_step_according_to_their_mode(
    mode: LRScheduler.StepMode, frequency: int, aggregation: int, steps: list[int], make_context: Any
) -> None:
    context = make_context(optimizations={"aggregation_frequency": aggregation})
    sgd = context.wrap_optimizer(optimizer())
    scheduler = lr_scheduler.ExponentialLR(sgd, 0.5)
    assert context.wrap_lr_scheduler(lr_scheduler=scheduler, step_mode=mode, frequency=frequency) is scheduler
    context._loop.batches_per_epoch = EPOCH_LEN
    exponent = 0
    for count in steps:
        context.step_optimizer(sgd)
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        exponent += count
        assert context.lr_schedulers[0].get_last_lr() == context.lr_schedulers[0].get_lr() == [0.5**exponent]


@pytest.mark.parametrize("mode", [mode for mode in MODE if mode is not MODE.STEP_EVERY_EPOCH])
def test_data_without_a_length_still_has_batches(mode: LRScheduler.StepMode) -> None:
    sgd = optimizer()
    scheduler = LRScheduler(lr_scheduler.ExponentialLR(sgd, 0.5), mode)
    sgd.step()
    scheduler._after_update(0, 1, None)
    assert scheduler.get_last_lr() == [1.0 if mode is MODE.MANUAL_STEP else 0.5]


def test_data_without_a_length_has_no_epochs() -> None:
    scheduler = LRScheduler(lr_scheduler.ExponentialLR(optimizer(), 0.5), MODE.STEP_EVERY_EPOCH)
    with pytest.raises(InvalidTrial, match="STEP_EVERY_EPOCH, but the training data has no length"):
        scheduler._after_update(0, 1, None)


def test_manual_steps_take_arguments() -> None:
    sgd = optimizer()
    scheduler = LRScheduler(lr_scheduler.ReduceLROnPlateau(sgd, patience=0, factor=0.5), MODE.MANUAL_STEP)
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert scheduler.get_last_lr() == [0.5]


def alone(sgd: torch.optim.Optimizer) -> Any:
    scheduler = lr_scheduler.StepLR(sgd, 1)
    return scheduler, scheduler


def chained(sgd: torch.optim.Optimizer) -> Any:
    scheduler = lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(sgd), lr_scheduler.StepLR(sgd, 1)], sgd)
    return scheduler, scheduler


def sequential(sgd: torch.optim.Optimizer) -> Any:
    parts = [lr_scheduler.ConstantLR(sgd), lr_scheduler.StepLR(sgd, 1)]
    scheduler = lr_scheduler.SequentialLR(sgd, parts, milestones=[2])
    return scheduler, scheduler


def part_of(make: Any) -> Any:
    def meddled(sgd: torch.optim.Optimizer) -> Any:
        scheduler, _ = make(sgd)
        return scheduler, scheduler._schedulers[1]

    return meddled


MEDDLED = [alone, chained, sequential, part_of(chained), part_of(sequential)]
"""Functions from an optimizer to the scheduler that is wrapped and the scheduler that the user steps."""


@pytest.mark.parametrize("mode", [mode for mode in MODE if mode is not MODE.MANUAL_STEP])
class TestMisuse:
    def test_the_user_must_not_step_the_wrapper(self, mode: LRScheduler.StepMode) -> None:
        scheduler = LRScheduler(lr_scheduler.StepLR(optimizer(), 1), mode)
        with pytest.raises(InvalidTrial, match=f"step_mode {mode.name}, which det steps itself"):
            scheduler.step()

    @pytest.mark.parametrize("make", MEDDLED)
    def test_the_user_must_not_step_the_inner_scheduler(self, mode: LRScheduler.StepMode, make: Any) -> None:
        sgd = optimizer()
        wrapped, stepped = make(sgd)
        scheduler = LRScheduler(wrapped, mode)
        sgd.step()
        stepped.step()
        with pytest.raises(InvalidTrial, match="stepped outside of det"):
            scheduler._after_update(EPOCH_LEN - 1, 1, EPOCH_LEN)

    def test_reduce_on_plateau_needs_the_manual_mode(self, mode: LRScheduler.StepMode) -> None:
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
def test_wrong_arguments_are_refused(scheduler: Any, mode: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message):
        LRScheduler(scheduler, mode)


@pytest.mark.parametrize("frequency", [0, -1, 1.0, None])
def test_a_wrong_frequency_is_refused(frequency: Any) -> None:
    with pytest.raises(InvalidTrial, match=f"frequency of an LRScheduler is {frequency}; expected an integer"):
        LRScheduler(lr_scheduler.StepLR(optimizer(), 1), MODE.STEP_EVERY_BATCH, frequency)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda sgd: lr_scheduler.OneCycleLR(sgd, 1.0, total_steps=10), ["OneCycleLR has total_steps=10"]),
        (lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=12), ["CosineAnnealingLR has T_max=12"]),
        (lambda sgd: lr_scheduler.PolynomialLR(sgd, total_iters=10), ["PolynomialLR has total_iters=10"]),
        (lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=5), []),
        (lambda sgd: lr_scheduler.CosineAnnealingLR(sgd, T_max=20), []),
        (lambda sgd: lr_scheduler.LinearLR(sgd, total_iters=3), []),
        (lambda sgd: lr_scheduler.StepLR(sgd, 10), []),
        (
            lambda sgd: lr_scheduler.SequentialLR(
                sgd,
                [lr_scheduler.LinearLR(sgd, total_iters=11), lr_scheduler.CosineAnnealingLR(sgd, T_max=8)],
                milestones=[2],
            ),
            ["CosineAnnealingLR has T_max=8"],
        ),
        (
            lambda sgd: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(sgd), lr_scheduler.LinearLR(sgd, 1, 0.1, total_iters=10)], sgd
            ),
            ["LinearLR has total_iters=10"],
        ),
    ],
)
@pytest.mark.parametrize("mode", [MODE.STEP_EVERY_BATCH, MODE.MANUAL_STEP])
def test_a_schedule_that_ends_within_an_extension_is_named(make: Any, named: list[str], mode: Any) -> None:
    """The training of 10 batches has a checkpoint after 8 batches and continues to 20."""
    sgd = optimizer()
    scheduler = LRScheduler(make(sgd), mode)
    sgd.step()
    for batch in range(8):
        scheduler._after_update(batch, 1, None)
        if mode is MODE.MANUAL_STEP:
            scheduler.step()
    found = scheduler._ends_after(10, trained=8, aggregation=1, epoch_len=None)
    assert [text.partition(",")[0] for end, text in found if end < 20] == named


@pytest.mark.parametrize(
    ("mode", "end"),
    [
        (MODE.STEP_EVERY_BATCH, 14),
        (MODE.STEP_EVERY_OPTIMIZER_STEP, 42),
        (MODE.STEP_EVERY_EPOCH, 140),
        (MODE.MANUAL_STEP, None),
    ],
)
def test_the_end_of_a_schedule_is_known_in_batches(mode: Any, end: int | None) -> None:
    scheduler = LRScheduler(lr_scheduler.CosineAnnealingLR(optimizer(), T_max=7), mode, frequency=2)
    assert first_end(scheduler, 14, aggregation=3, epoch_len=10) == end


@pytest.mark.parametrize(("training_length", "end"), [(3, 4), (4, 4), (5, 4), (6, 14), (15, 14), (16, None)])
def test_schedules_that_end_earlier_than_the_training_are_not_meant(training_length: int, end: int | None) -> None:
    sgd = optimizer()
    warm_up, cosine = lr_scheduler.LinearLR(sgd, total_iters=2), lr_scheduler.CosineAnnealingLR(sgd, T_max=7)
    scheduler = LRScheduler(lr_scheduler.ChainedScheduler([warm_up, cosine]), MODE.STEP_EVERY_BATCH, frequency=2)
    assert first_end(scheduler, training_length) == end


def first_end(scheduler: LRScheduler, length: int, aggregation: int = 1, epoch_len: int | None = None) -> int | None:
    ends = scheduler._ends_after(length, trained=0, aggregation=aggregation, epoch_len=epoch_len)
    return min((end for end, _ in ends), default=None)


def test_the_optimizer_of_a_scheduler_must_be_wrapped(make_context: Any) -> None:
    with pytest.raises(InvalidTrial, match="given a StepLR of an optimizer that is not wrapped"):
        make_context().wrap_lr_scheduler(lr_scheduler.StepLR(optimizer(), 1), MODE.STEP_EVERY_BATCH)


def test_an_optimizer_may_have_several_schedulers(make_context: Any) -> None:
    context = make_context()
    sgd = context.wrap_optimizer(optimizer())
    context.wrap_lr_scheduler(lr_scheduler.LinearLR(sgd, 0.25, total_iters=3), MODE.STEP_EVERY_BATCH)
    context.wrap_lr_scheduler(lr_scheduler.StepLR(sgd, 1, gamma=0.5), MODE.STEP_EVERY_BATCH, frequency=2)
    rates = []
    for _ in range(4):
        context.step_optimizer(sgd)
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        rates.append(sgd.param_groups[0]["lr"])
    assert rates == pytest.approx([0.5, 0.75 / 2, 1 / 2, 1 / 4])


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
def test_state_passes_through_a_safe_file(make: Any, tmp_path: Any) -> None:
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
