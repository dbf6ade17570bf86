"""Trials train on the nodes of a cluster as on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import RunningCluster
from training import run_experiment

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

CODE = "model_def.py"
LINE = """
import torch
from det_torch import DataLoader, PyTorchTrial

class LineTrial(PyTorchTrial):
    def build_model(self):
        return torch.nn.Linear(3, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), 0.1)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return {"loss": torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))}

    def evaluate_batch(self, batch, model):
        return {"loss": torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))}

    def build_training_data_loader(self):
        return DataLoader(data(), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(data(), batch_size=8)

def data():
    return torch.randn(32, 3, generator=torch.Generator().manual_seed(1))
"""
SEARCHED = """
import det_core as det

rate = det.get_cluster_info().trial.hparams["rate"]
with det.core.init() as core_context:
    for op in core_context.searcher.operations():
        core_context.train.report_validation_metrics(steps_completed=op.length, metrics={"loss": rate / op.length})
        op.report_completed(rate / op.length)
"""

GPUS = """
import os, time
from pathlib import Path
import det_core as det

trial = det.get_cluster_info().trial
meeting = Path(trial.hparams["meeting"])
(meeting / str(trial.trial_id)).touch()
deadline = time.monotonic() + 60
while len(list(meeting.iterdir())) < 2 and time.monotonic() < deadline:
    time.sleep(0.05)
print("uses", os.environ["CUDA_VISIBLE_DEVICES"], "of", os.environ["DEVICE"])
with det.core.init() as core_context:
    core_context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
"""


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_two_nodes_train_what_one_trains(store: TrackingStore, tmp_path: Path) -> None:
    def losses(name: str, slots: int, launcher: dict[str, Any]) -> list[float]:
        config = {
            "entrypoint": "model_def:LineTrial",
            "hyperparameters": {"global_batch_size": 8},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 12}},
            "scheduling_unit": 4,
            "reproducibility": {"experiment_seed": 7},
            "resources": {"slots_per_trial": slots},
            "launcher": launcher,
        }
        if slots > 1:
            config["distributed"] = {"backend": "torch_distributed"}
        (trial,) = run_experiment(store, tmp_path / name, CODE, LINE, config)
        groups = [store.metrics(trial.id, group=group) for group in ("training", "validation")]
        return [report.metrics["loss"] for reports in groups for report in reports]

    one = losses("one", 1, {"type": "local"})
    two = losses("two", 2, {"type": "ray", "slots_per_node": 1, "resources": {"CPU": 1}})
    assert len(one) == 4 and two == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_search_uses_all_nodes_at_once(store: TrackingStore, tmp_path: Path) -> None:
    config = {
        "entrypoint": "python3 model_def.py",
        "hyperparameters": {"rate": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {
            "name": "async_halving",
            "metric": "loss",
            "max_length": {"batches": 16},
            "max_trials": 4,
            "max_concurrent_trials": 2,
            "num_rungs": 2,
        },
        "launcher": {"type": "ray", "resources": {"CPU": 1}},
    }
    trials = run_experiment(store, tmp_path / "search", CODE, SEARCHED, config)
    assert len(trials) == 4 and all(trial.state is State.COMPLETED and not trial.restarts for trial in trials)
    longest = max(trial.steps_completed for trial in trials)
    assert longest == 16 and sum(trial.steps_completed == 16 for trial in trials) < 4


@pytest.mark.slow
def test_slots_are_gpus_if_there_are_any(store: TrackingStore, tmp_path: Path, cluster: RunningCluster) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    config = {
        "entrypoint": "python3 model_def.py",
        "hyperparameters": {"meeting": str(meeting), "number": {"type": "categorical", "vals": [1, 2]}},
        "searcher": {"name": "grid", "metric": "loss", "max_length": {"batches": 1}},
        "environment": {"environment_variables": {"cpu": ["DEVICE=cpu"], "cuda": ["DEVICE=cuda"]}},
        "launcher": {"type": "ray", "slots_per_node": 2},
    }
    cluster.add_node({"CPU": 1, "GPU": 2})
    try:
        trials = run_experiment(store, tmp_path / "gpus", CODE, GPUS, config)
    finally:
        cluster.kill_node(-1)
    lines = [line.log for trial in trials for line in store.logs(trial.id)]
    assert sorted(line for line in lines if line.startswith("uses")) == ["uses 0 of cuda", "uses 1 of cuda"]
