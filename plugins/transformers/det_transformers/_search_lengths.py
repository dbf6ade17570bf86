"""Lengths that the search method requests, in steps or epochs of the ``Trainer``."""

from __future__ import annotations

import logging
from typing import Any

from transformers import TrainerState, TrainingArguments

from det_core import core
from det_core.core import SearcherOperation, Unit

_log = logging.getLogger("det.transformers")


class SearchLengths:
    """Operations of the search of a trial.

    A script without a runner, and a config without ``searcher.max_length``, have none.

    Args:
        core_context: the core context.

    Raises:
        ValueError: the lengths are in records.
    """

    operation: SearcherOperation | None
    """Operation to train for. None if there is none, or none is left."""

    def __init__(self, core_context: core.Context) -> None:
        searcher = core_context.searcher
        self._core = core_context
        self._has_operations = core_context.info is not None and searcher.ordered() is not None
        self._operations = searcher.operations() if self._has_operations else iter(())
        self._in_epochs = searcher.get_configured_units() is Unit.EPOCHS
        if self._has_operations and searcher.get_configured_units() is Unit.RECORDS:
            raise ValueError(
                "searcher.max_length is in records, which a Trainer does not count; write {batches: N}, its steps, or "
                "{epochs: N}"
            )
        self.operation = next(self._operations, None)

    def set_training_length(self, args: TrainingArguments) -> None:
        """Set the length of training, on which the learning rate depends, to ``searcher.max_length`` of the config."""
        length = self._core.config.searcher.max_length if self._has_operations else None
        if length is None:
            return
        before = (args.max_steps, args.num_train_epochs)
        if self._in_epochs:
            args.max_steps, args.num_train_epochs = -1, length.value
        else:
            args.max_steps = length.value
        if (args.max_steps, args.num_train_epochs) != before:
            _log.info("searcher.max_length is %s; args.max_steps and args.num_train_epochs follow it", length.dump())

    def report_progress(self, state: TrainerState) -> None:
        """Report how much of the length is done."""
        if self._core.distributed.rank:
            return
        if self.operation:
            self.operation.report_progress(self._trained(state))
        elif not self._has_operations:
            self._core.train.report_progress(min(state.global_step / state.max_steps, 1.0))

    def is_reached(self, state: TrainerState) -> bool:
        """Return whether the trial has trained as long as requested."""
        return self.operation is not None and self._trained(state) >= self.operation.length

    def needs_evaluation(self, state: TrainerState) -> bool:
        """Return whether the searcher's metric is an evaluation's, and this step has none yet."""
        metric = self._metric_name()
        return metric.startswith("eval_") and metric not in values_at(state)

    def complete(self, state: TrainerState) -> bool:
        """Complete the operations whose length is reached, and return whether none is left."""
        while self.operation and self.is_reached(state):
            if self._core.distributed.rank == 0:
                self.operation.report_completed(self._metric(state))
            self.operation = next(self._operations, None)
        return self._has_operations and self.operation is None

    def _trained(self, state: TrainerState) -> float:
        return state.epoch if self._in_epochs else state.global_step

    def _metric_name(self) -> str:
        return str(self._core.config.searcher.metric)

    def _metric(self, state: TrainerState) -> Any:
        name, values = self._metric_name(), values_at(state)
        if name not in values:
            raise ValueError(
                f"searcher.metric is {name!r}, but the Trainer has logged {', '.join(sorted(values)) or 'nothing'} at "
                f"step {state.global_step}; write one of these in the config, and pass an eval_dataset for eval_loss"
            )
        return values[name]


def values_at(state: TrainerState) -> dict[str, Any]:
    """Return all values that the ``Trainer`` has logged at its latest step, by name."""
    logs = (entry for entry in state.log_history if entry["step"] == state.global_step)
    return {name: value for entry in logs for name, value in entry.items() if name != "step"}
