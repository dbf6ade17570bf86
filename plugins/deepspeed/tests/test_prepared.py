"""Workers with DeepSpeed are forks of a process that has imported torch, and train as new processes do, bitwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from det_testing.comparison import bitwise_form
from det_testing.disturbed_experiment import run_experiment

from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("deepspeed")]

TRIAL = """
import gc
import torch
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        print("is a fork:", gc.get_freeze_count() > 0)
        layers = [torch.nn.Linear(30, 20), torch.nn.Dropout(), torch.nn.Linear(20, 1)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.data = TensorDataset(torch.randn(256, 30), torch.randn(256, 1))

    def build_training_data_loader(self):
        return DataLoader(self.data, batch_size=32, shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.data, batch_size=128)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        inputs, targets = batch
        return {"validation_loss": torch.nn.functional.mse_loss(self.model(inputs), targets)}
"""


def train(directory: Path, *, is_prepared: bool) -> list[Any]:
    """Train the trial on two slots, and return what it has reported."""
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "model_def.py").write_text(TRIAL)
    config = {
        "entrypoint": "model_def:Trial",
        "hyperparameters": {"global_batch_size": 64},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 8}},
        "resources": {"slots_per_trial": 2},
        "distributed": {"backend": "deepspeed"},
        "launcher": {"type": "local", "slots": 2, **({} if is_prepared else {"prepare": False})},
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 1},
    }
    with open_store() as store:
        (trial,) = run_experiment(store, config, code)
        reports = [(one.group, one.metrics, one.batch_metrics) for one in store.metrics(trial.id)]
        printed = [line.log for line in store.logs(trial.id) if line.log.startswith("is a fork")]
    assert printed == [f"is a fork: {is_prepared}"] * 2
    return reports


def test_prepared_workers_equal_started_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    started, prepared = (train(tmp_path, is_prepared=is_prepared) for is_prepared in (False, True))
    assert bitwise_form(prepared) == bitwise_form(started)
