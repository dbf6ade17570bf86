"""Warnings about differences between the run that saved a checkpoint and the run that continues from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

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


def warn_of_ending_schedules(context: PyTorchTrialContext, before: int | None) -> None:
    """Name the learning rate schedules that end before the training does, because it was extended.

    Args:
        context: context of the trial, with restored schedulers.
        before: number of batches of the training when the checkpoint was saved. None if unknown.
    """
    after = context.training_length
    if before is None or after is None:
        return
    frequency, epoch_len = context.aggregation_frequency, context._epoch_len
    for scheduler in context.lr_schedulers:
        for end in scheduler._ends_within(
            before, after, trained=context._batch_idx, aggregation=frequency, epoch_len=epoch_len
        ):
            _log.warning(
                "the training was extended from %d to %d batches, but %s. The checkpoint has this number, whatever the "
                "code says. For another schedule, begin a new experiment with the weights of the checkpoint",
                before,
                after,
                end,
            )
