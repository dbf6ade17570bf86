"""A script with a `Trainer`, started on several slots by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from det_core.tracking import open_store

pytestmark = pytest.mark.integration

SCRIPT = """
import det_torch
import torch
import torch.distributed as dist
from det_torch.testing.code.model_def import Adversaries
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
with det_torch.init(hparams={"global_batch_size": 8}, exp_conf={"searcher": {"metric": "validation_loss"}}) as context:
    trial = Adversaries(context)
    assert isinstance(trial.maker, DistributedDataParallel)
    det_torch.Trainer(trial, context).fit(max_length=det_torch.Batch(5))
    sum_of_ranks = torch.tensor([float(context.distributed.rank)], device=context.device)
    dist.all_reduce(sum_of_ranks)
    print("rank", context.distributed.rank, "trained", context.current_train_batch(), "batches:", sum_of_ranks.item())
    print(dist.get_backend(), context.device.type, {weight.device.type for weight in trial.maker.parameters()})
"""


def needs_gpus(count: int) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < count, reason="needs a GPU for each slot")]


@pytest.mark.parametrize(
    ("slots", "device", "transport"),
    [
        pytest.param(2, "cpu", "gloo", marks=pytest.mark.soak),  # make test has `a_script_trains` in sharded.py
        pytest.param(1, "cuda", "nccl", marks=needs_gpus(1)),
        pytest.param(2, "cuda", "nccl", marks=needs_gpus(2)),
    ],
)
def test_init_finds_the_other_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, device: str, transport: str
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    if device == "cpu":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "det_core.launch", "torch_distributed", "--slots", str(slots), "--", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(slots):
        assert f"rank {rank} trained 5 batches: {sum(range(slots)):.1f}" in done.stdout
    assert done.stdout.count(f"{transport} {device} {{'{device}'}}") == slots, done.stdout
    with open_store() as store:
        assert [report.steps_completed for report in store.metrics(1)] == [5, 5]
