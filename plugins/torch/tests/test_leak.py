"""Weeks of training must not fill the memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """
import gc, psutil, torch
import det_torch
from torch.utils.data import TensorDataset

BATCHES, WARM = 26_000, 6_000
MEMORY = []

class Trial(det_torch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx in (WARM, BATCHES - 1):
            gc.collect()
            MEMORY.append(psutil.Process().memory_info().rss)
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch[0]).pow(2).mean()}

    def build_training_data_loader(self):
        return det_torch.DataLoader(TensorDataset(torch.randn(512, 64)), batch_size=8, shuffle=True)

    build_validation_data_loader = build_training_data_loader

torch.set_num_threads(1)
with det_torch.init() as context:
    det_torch.Trainer(Trial(context), context).fit(
        max_length=det_torch.Batch(BATCHES),
        reporting_period=det_torch.Batch(1),
        checkpoint_period=det_torch.Batch(400),
        validation_period=det_torch.Batch(2000),
    )
print((MEMORY[1] - MEMORY[0]) / 2**20)
"""


def test_20_000_batches_with_reports_and_50_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr[-3000:]
    grown = float(result.stdout.splitlines()[-1])
    assert grown < 20, f"{grown:.1f} MiB"
