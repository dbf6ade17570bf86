"""Number of calls that det makes for each batch, beside the trial's own code, and the objects that it keeps."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_torch import DataLoader, LRScheduler, PyTorchTrial, PyTorchTrialContext
from det_torch._adapter import PyTorchAdapter
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

import det_core

SOURCES = tuple(str(Path(package.__file__ or "").parent) for package in (det_core, det_torch))


class Small(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(2, 1))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        if context.get_hparam("schedules"):
            context.wrap_lr_scheduler(StepLR(self.sgd, 10), LRScheduler.StepMode.STEP_EVERY_BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = (self.model(x) - y).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.model(batch[0]).pow(2).mean()}

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(800, 2), torch.ones(800, 1)), batch_size=4, shuffle=True)

    build_validation_data_loader = build_training_data_loader


@pytest.mark.parametrize(("schedules", "most"), [(False, 8), (True, 18)])
def test_det_makes_few_calls_per_batch(make_context: Any, *, schedules: bool, most: int) -> None:
    """The budget counts calls, so it holds on any machine, unlike the times of `make bench`. It only goes down."""
    context = make_context(hparams={"schedules": schedules})
    adapter = PyTorchAdapter(Small(context), context)
    adapter.started()
    adapter.train(2, lambda: False)
    short, long = _calls(adapter, 10), _calls(adapter, 110)
    per_batch = {name: (long[name] - short[name]) / 100 for name in long}
    assert sum(per_batch.values()) <= most, {name: calls for name, calls in per_batch.items() if calls >= 1}
    adapter.close()


def _calls(adapter: PyTorchAdapter, batches: int) -> Counter[str]:
    """Train, and return the number of calls of each function of det, including resumptions of generators."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        adapter.train(batches, lambda: False)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.integration
def test_batches_reports_validations_and_checkpoints_keep_no_objects(make_context: Any, tmp_path: Path) -> None:
    """The memory that the process needs for whole trainings is measured in `test_leak.py`."""
    context = make_context(hparams={"schedules": True})
    adapter = PyTorchAdapter(Small(context), context)
    adapter.started()

    def train(rounds: int) -> int:
        """Train, and return the number of objects that have references to others."""
        for _ in range(rounds):
            rows = adapter.train(4, lambda: False)
            adapter.reported(adapter.reduced(), rows)
            adapter.validate(lambda: False)
            adapter.snapshot()(tmp_path)
        del rows
        gc.collect()
        return len(gc.get_objects())

    before, after = train(10), train(40)
    adapter.close()
    assert after - before < 16, "an object per checkpoint would be 40"
