"""An elastic trial for which the cluster has too few cores trains on fewer slots, also with the next runner."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import start_runner
from fake_cluster import FakeCluster

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(280)]

_TRIAL = """
import time
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def build_training_data_loader(self):
        return DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 5:
            print("waiting on", self.context.distributed.size, flush=True)
        while batch_idx == 5 and not Path(self.context.get_hparam("release")).exists():
            time.sleep(0.02)
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch[0]).square().mean()}
"""


def test_an_elastic_trial_on_fewer_slots_is_adopted(store: TrackingStore, fake: FakeCluster, tmp_path: Path) -> None:
    """The launch request of the next runner has the slots of the run, as its agent expects."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model_def.py").write_text(_TRIAL, encoding="utf-8")
    config = {
        "entrypoint": "model_def:Trial",
        "hyperparameters": {"global_batch_size": 2, "release": str(tmp_path / "release")},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 8}},
        "resources": {"slots_per_trial": 2, "min_slots_per_trial": 1, "elastic_timeout": 1},
        "distributed": {"backend": "torch_distributed"},
        "launcher": {"type": "kubernetes"},
        "environment": dict(fake.environment),
        "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "checkpoints")},
    }
    identity = submit_experiment(store, parse_config(config), tmp_path / "code").id

    def lines() -> list[str]:
        return [line.log for trial in store.trials(identity) for line in store.logs(trial.id)]

    with start_runner(identity) as runner:
        try:
            wait_for(lambda: "waiting on 1" in lines(), seconds=200)
        finally:
            runner.kill()
    (trial,) = store.trials(identity)
    assert store.run(trial.id, 1).slots == 1
    (tmp_path / "release").touch()
    assert ExperimentRunner(store, identity).run() is State.COMPLETED, "\n".join(lines())
    assert "run 1 of trial 1 goes on with another runner" in lines(), "\n".join(lines())
    assert [(run.run_id, run.slots) for run in store.runs(trial.id)] == [(1, 1)], "\n".join(lines())
