"""Scripts written for DeepSpeed's own launcher, and scripts with a `Trainer`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.integration

SCRIPT = """
import os
from det_core import core

with core.init(distributed=core.DistributedContext.from_deepspeed()) as context:
    ranks = context.distributed.allgather(context.distributed.rank)
    print(ranks, *(os.environ[name] for name in ("LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")))
"""

TRAINING = """
import sys
import det_torch
import torch.distributed as dist
from det_torch.testing.code.model_def import Adversaries

with det_torch.init(hparams={"global_batch_size": 8}, exp_conf={"searcher": {"metric": "validation_loss"}}) as context:
    trial = Adversaries(context)
    assert "deepspeed" in sys.modules
    det_torch.Trainer(trial, context).fit(max_length=det_torch.Batch(5))
    print("rank", context.distributed.rank, "trained", context.current_train_batch(), "batches")
    print(dist.get_backend(), context.device.type, {weight.device.type for weight in trial.maker.parameters()})
"""


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "det_core.launch", "deepspeed", "--slots", "2", "--", "train.py"],
        pytest.param(
            ["-m", "determined.launch.deepspeed", "python3", "train.py"],
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(find_spec("determined") is None, reason="needs det-compat"),
            ],
        ),
    ],
    ids=["det", "compat"],
)
def test_a_script_can_make_its_context_from_deepspeed(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "DET_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    slots = 2 if "--slots" in command else 1
    for rank in range(slots):
        assert f"[rank={rank}] {list(range(slots))} {slots} 0 1" in done.stdout


def needs_gpus(count: int) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < count, reason="needs a GPU for each slot")]


@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize(
    ("slots", "device", "transport"),
    [
        pytest.param(2, "cpu", "gloo", marks=pytest.mark.slow),
        pytest.param(1, "cuda", "nccl", marks=needs_gpus(1)),
        pytest.param(2, "cuda", "nccl", marks=needs_gpus(2)),
    ],
)
def test_a_trial_trains(tmp_path: Path, slots: int, device: str, transport: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    stage = ["--option", "ds_config.zero_optimization.stage=2"]
    done = subprocess.run(
        [sys.executable, "-m", "det_core.launch", "deepspeed", "--slots", str(slots), *stage, "--", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "DET_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1", **hidden},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(slots):
        assert f"rank {rank} trained 5 batches" in done.stdout
    assert done.stdout.count(f"{transport} {device} {{'{device}'}}") == slots, done.stdout
