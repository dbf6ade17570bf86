"""A script with a `Trainer`, started on several slots by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.tracking import open_store

pytestmark = pytest.mark.integration

SCRIPT = """
import det_torch
import torch
from det_torch.testing.code.model_def import Adversaries
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
with det_torch.init(hparams={"global_batch_size": 8}, exp_conf={"searcher": {"metric": "validation_loss"}}) as context:
    trial = Adversaries(context)
    assert isinstance(trial.maker, DistributedDataParallel)
    det_torch.Trainer(trial, context).fit(max_length=det_torch.Batch(5))
print(f"rank {context.distributed.rank} trained {context.current_train_batch()}")
"""


def test_init_finds_the_other_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "det_core.launch", "torch_distributed", "--slots", "2", "--", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} trained 5" in done.stdout for rank in range(2))
    with open_store() as store:
        assert [report.steps_completed for report in store.metrics(1)] == [5, 5]
