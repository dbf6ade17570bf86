"""What det adds to each training batch, over the same model in a plain PyTorch loop.

    python benchmarks/training_loop.py

Both train in alternating rounds of one process. det's rounds include everything: the trial loop with its preemption
checks, one report per 100 batches with the loss of each of them, and waiting for the record (SQLite) to be
written. The ratio is the median over pairs of rounds; below 1.15 is the promise.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from det_torch import DataLoader, PyTorchTrial, PyTorchTrialContext
from det_torch._adapter import PyTorchAdapter
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

import det_core as det
from det_core.config import parse_config
from det_core.tracking import open_store
from det_core.trial import TrialLoop

PERIOD = 100
"""Batches between two reports."""
PERIODS_PER_ROUND = 10
ROUNDS = 15
BATCH_SIZE = 32
DATASET = TensorDataset(torch.randn(8192, 64), torch.randint(10, (8192,)))
CONFIG = {
    "name": "benchmark",
    "entrypoint": "training_loop:MlpTrial",
    "hyperparameters": {"global_batch_size": BATCH_SIZE},
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 10**9}},
    "scheduling_unit": PERIOD,
    "resources": {"slots_per_trial": 0},
}


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.001)


class MlpTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        return build_model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return build_optimizer(model)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        inputs, labels = batch
        return F.cross_entropy(model(inputs), labels)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> dict[str, Any]:
        return {"validation_loss": self.train_batch(batch, model, 0, 0)}

    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(DATASET, batch_size=BATCH_SIZE, shuffle=True)

    build_validation_data_loader = build_training_data_loader


def plain_batches() -> Iterator[None]:
    """Trains one batch per step."""
    model = build_model()
    optimizer = build_optimizer(model)
    while True:
        for inputs, labels in torch.utils.data.DataLoader(DATASET, batch_size=BATCH_SIZE, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            yield


def det_periods(core: Any) -> Iterator[None]:
    """Trains, and reports, one period per step."""
    context = PyTorchTrialContext.from_core(core)
    adapter = PyTorchAdapter(MlpTrial(context), context)
    loop = TrialLoop(adapter, core, context)
    for batches in loop.chunks():
        loop.trained(adapter.train(batches, core.preempt.should_preempt))
        yield


def prepare(directory: Path) -> None:
    """Record an experiment of one trial, and tell `det_core.core.init` that this process trains it."""
    os.environ |= {"DET_HOME": str(directory), "DET_INFO_DIR": str(directory)}
    config = parse_config(CONFIG).dump()
    with open_store() as store:
        experiment = store.create_experiment(config=config)
        trial = store.create_trial(experiment.id, hparams=CONFIG["hyperparameters"], seed=1)
        run = store.start_run(trial.id, allocation_id=str(uuid.uuid4()))
        url = store.url
    cluster = {"master_url": url, "cluster_id": "", "agent_id": "", "slot_ids": [], "task_id": "", "session_token": ""}
    info = {"trial_id": trial.id, "experiment_id": experiment.id, "trial_seed": 1, "trial_run_id": run.run_id}
    (directory / "cluster.json").write_text(json.dumps({**cluster, "allocation_id": run.allocation_id}))
    (directory / "trial.json").write_text(
        json.dumps({**info, "hparams": CONFIG["hyperparameters"], "config": config, "steps_completed": 0})
    )


def microseconds_per_batch(train: Callable[[], None]) -> float:
    start = time.perf_counter()
    train()
    return (time.perf_counter() - start) / (PERIOD * PERIODS_PER_ROUND) * 1e6


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        prepare(Path(directory))
        with det.core.init() as core:
            plain, periods = plain_batches(), det_periods(core)

            def train_plain() -> None:
                for _ in range(PERIOD * PERIODS_PER_ROUND):
                    next(plain)

            def train_det() -> None:
                for _ in range(PERIODS_PER_ROUND):
                    next(periods)
                core.train.flush()

            train_plain()
            train_det()
            rounds = [(microseconds_per_batch(train_plain), microseconds_per_batch(train_det)) for _ in range(ROUNDS)]
            periods.close()
    ratio = statistics.median(det_time / plain_time for plain_time, det_time in rounds)
    print(f"plain PyTorch {statistics.median(plain for plain, _ in rounds):7.1f} us/batch")
    print(f"det           {statistics.median(ours for _, ours in rounds):7.1f} us/batch")
    print(f"ratio         {ratio:7.3f}")


if __name__ == "__main__":
    main()
