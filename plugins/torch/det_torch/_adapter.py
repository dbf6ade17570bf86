"""Between det's loop, which decides when, and a trial, which says what."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from det_core.interfaces.framework import Metrics, TrialAdapter
from det_torch import _checkpoint
from det_torch._context import PyTorchTrialContext
from det_torch._data import check_loader
from det_torch._metrics import settle, training_metrics, validation_metrics
from det_torch._random import derive_seed, forked, set_rng_state
from det_torch._reducer import reduce_metrics
from det_torch._stream import read
from det_torch._styles import steps_of
from det_torch._trial import PyTorchTrial

_log = logging.getLogger("det.torch")


class PyTorchAdapter(TrialAdapter):
    """Trains and evaluates one `PyTorchTrial` in this process.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._steps = steps_of(trial, context)
        self._training = check_loader(trial.build_training_data_loader(), "build_training_data_loader")
        validation = check_loader(trial.build_validation_data_loader(), "build_validation_data_loader")
        rank, size = context.distributed.rank, context.distributed.size
        own_share = range(rank, len(validation), size)
        self._validation = read(
            validation,
            range(len(validation)) if self._steps.full_dataset else own_share,
            seed=self._seed("validation data"),
        )
        self._batches: Iterator[Any] | None = None
        self._loss_was_nan = False
        context._epoch_len = math.ceil(len(self._training) / size)

    @property
    def batches_per_epoch(self) -> int:
        return self._context._epoch_len

    @property
    def records_per_batch(self) -> int:
        return self._context.get_global_batch_size()

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        context, train_batch = self._context, self._steps.train_batch
        data = self._batches or self._begin_reading()
        rows: list[dict[str, Any]] = []
        for model in context.models:
            model.train()
        with self._noting_errors("training"):
            for _ in range(batches):
                batch = context.to_device(next(data))
                rows.append(training_metrics(train_batch(batch, context.current_train_epoch(), context._batch_idx)))
                context._step_lr_schedulers()
                context._batch_idx += 1
                if stop():
                    break
        settle(rows)
        self._watch_for_nan(rows)
        return rows

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        for model in self._context.models:
            model.eval()
        # Generators of its own: a run that validates once more, or less, trains the same.
        with forked(self._seed("validation")), torch.no_grad(), self._noting_errors("validation"):
            rows = list(takewhile(lambda _: not stop(), self._evaluate()))
            if stop():
                return None
        settle(rows)
        return rows[0] if self._steps.full_dataset else reduce_metrics(rows, self._trial.evaluation_reducer())

    def snapshot(self) -> Callable[[Path], None]:
        return lambda path: _checkpoint.save(self._context, path)

    def load(self, path: Path, *, batches_trained: int) -> None:
        state = _checkpoint.load(path)
        if batches_trained == 0:  # another trial's checkpoint
            _checkpoint.restore_weights(self._context, state)
            return
        _checkpoint.restore(self._context, state)
        self._context._batch_idx = self._context._initial_batch = batches_trained
        self._begin_reading()
        set_rng_state(state["rng_state"])

    def metadata(self) -> Mapping[str, Any]:
        return {"framework": f"torch-{torch.__version__}", "format": "pickle", "trial_framework": "pytorch"}

    def _evaluate(self) -> Iterator[dict[str, Any]]:
        evaluate = self._steps.evaluate
        if self._steps.full_dataset:
            yield validation_metrics(evaluate(self._validation), "evaluate_full_dataset")
            return
        for batch in self._validation:
            yield validation_metrics(evaluate(self._context.to_device(batch)), "evaluate_batch")

    def _begin_reading(self) -> Iterator[Any]:
        rank, size = self._context.distributed.rank, self._context.distributed.size
        numbers = range(self._context._batch_idx * size + rank, sys.maxsize, size)
        self._batches = iter(read(self._training, numbers, seed=self._seed("training data")))
        return self._batches

    def _seed(self, purpose: str) -> int:
        return derive_seed(self._context.get_trial_seed(), purpose)

    @contextmanager
    def _noting_errors(self, activity: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            batch, epoch = self._context.current_train_batch(), self._context.current_train_epoch()
            _log.error("%s failed at batch %d, in epoch %d (both count from 0)", activity, batch, epoch)
            raise

    def _watch_for_nan(self, rows: Sequence[Metrics]) -> None:
        if self._loss_was_nan:
            return
        first = self._context._batch_idx - len(rows)
        for batch, row in enumerate(rows, first):
            if row["loss"] != row["loss"]:
                self._loss_was_nan = True
                _log.warning("the loss of batch %d is NaN; training goes on, and later ones are not announced", batch)
                return
