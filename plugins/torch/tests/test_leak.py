"""Weeks of training must not fill the memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.soak]

SCRIPT = """
import gc, psutil, sys, torch
import det_torch
from torch.utils.data import TensorDataset

WARM, BATCHES = int(sys.argv[1]), int(sys.argv[2])
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
        checkpoint_period=det_torch.Batch(BATCHES // 65),
        validation_period=det_torch.Batch(BATCHES // 13),
    )
print(MEMORY[1] - MEMORY[0])
"""


WARM, BATCHES = 6_000, 26_000
BYTES = 1_000


def test_batches_with_reports_and_checkpoints_leak_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    command = [sys.executable, "-c", SCRIPT, str(WARM), str(BATCHES)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr[-3000:]
    grown = float(result.stdout.splitlines()[-1])
    assert grown < BYTES * (BATCHES - WARM), f"{grown / 2**20:.1f} MiB"
