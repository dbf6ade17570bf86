"""Warnings about differences between the run that saved a checkpoint and the run that continues from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import chain

from det_torch._context import PyTorchTrialContext

_log = logging.getLogger("det.torch")


def warn_of_other_data(saved: Mapping[str, int | None], own: Mapping[str, int | None]) -> None:
    """Name the data sets whose numbers of records differ.

    Args:
        saved: number of records by name of the data set when the checkpoint was saved. None if unknown.
        own: the same for this run.
    """
    for name, length in own.items():
        before = saved.get(name)
        if None not in (length, before) and length != before:
            _log.warning(
                "the %s data has %d records, but had %d when the checkpoint was saved, so its batches differ from "
                "those of an uninterrupted training; restore the data, or begin a new experiment",
                name,
                length,
                before,
            )


def find_schedule_ends(context: PyTorchTrialContext, length: int) -> list[tuple[int, str]]:
    """Return the ends of learning rate schedules, as `LRScheduler._ends_after` yields them.

    Args:
        context: context of the trial.
        length: number of batches of the whole training.
    """
    ends = (
        scheduler._ends_after(
            length,
            trained=context._loop.batch,
            aggregation=context.aggregation_frequency,
            epoch_len=context._loop.batches_per_epoch,
        )
        for scheduler in context.lr_schedulers
    )
    return [*chain.from_iterable(ends)]


def warn_of_ending_schedules(context: PyTorchTrialContext, before: int | None) -> None:
    """Name the learning rate schedules that end before the training does, because it was extended.

    Args:
        context: context of the trial, with restored schedulers.
        before: number of batches of the training when the checkpoint was saved. None if unknown.
    """
    after = context.training_length
    if before is None or after is None:
        return
    for end, text in find_schedule_ends(context, before):
        if end < after:
            _log.warning(
                "the training was extended from %d to %d batches, but %s. The checkpoint has this number, whatever the "
                "code says. For another schedule, begin a new experiment with the weights of the checkpoint",
                before,
                after,
                text,
            )
