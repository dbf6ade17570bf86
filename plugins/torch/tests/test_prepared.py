"""Trials whose workers are forked from a process that has imported torch train as those of new processes, bitwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from det_testing.comparison import bitwise_form
from det_testing.disturbed_experiment import run_experiment

from det_core.tracking import open_store

pytestmark = pytest.mark.integration

TRIAL = """
import gc, hashlib, random
import numpy as np
import torch
from torch.utils.data import TensorDataset
from det_torch import DataLoader, PyTorchTrial

def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:12]

class Trial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        assert (gc.get_freeze_count() > 0) == context.get_hparam("is_prepared")
        assert not torch.cuda.is_initialized()
        print("random", random.random(), np.random.rand(), torch.rand(1).item())
        torch.manual_seed(3)
        large = torch.randn(700, 700)
        products = large @ large, torch.from_numpy(large.numpy() @ large.numpy())
        print("threads", torch.get_num_threads(), *map(digest, products))
        layers = [torch.nn.Linear(600, 300), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(300, 10)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.data = TensorDataset(torch.randn(256, 600), torch.randint(10, (256,)))

    def build_training_data_loader(self):
        method = self.context.get_hparam("workers")
        return DataLoader(self.data, batch_size=64, shuffle=True, num_workers=2, multiprocessing_context=method)

    def build_validation_data_loader(self):
        return DataLoader(self.data, batch_size=128)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        inputs, labels = batch
        return {"validation_loss": torch.nn.functional.cross_entropy(self.model(inputs), labels)}
"""


def train(directory: Path, workers: str, *, is_prepared: bool) -> dict[str, Any]:
    """Train the trial on two threads, and return all that it has reported, printed and saved."""
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "model_def.py").write_text(TRIAL)
    config = {
        "entrypoint": "model_def:Trial",
        "hyperparameters": {"global_batch_size": 64, "workers": workers, "is_prepared": is_prepared},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 8}},
        "environment": {"environment_variables": ["OMP_NUM_THREADS=2"]},
        "launcher": {"type": "local", **({} if is_prepared else {"prepare": False})},
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 1},
    }
    with open_store() as store:
        (trial,) = run_experiment(store, config, code)
        reports = [(one.group, one.metrics, one.batch_metrics) for one in store.metrics(trial.id)]
        printed = [line.log for line in store.logs(trial.id) if line.stdtype == "stdout"]
        saved = store.checkpoints(trial_id=trial.id)[-1]
    state = torch.load(Path(saved.storage["container_path"], saved.uuid, "state_dict.pth"), weights_only=True)
    return {"reports": reports, "printed": printed, "models": state["models_state_dict"]}


@pytest.mark.parametrize("workers", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_prepared_trial_equals_a_started_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: str) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    started, prepared = (train(tmp_path, workers, is_prepared=is_prepared) for is_prepared in (False, True))
    assert len(started["printed"]) == 2
    assert "threads 2 " in started["printed"][1]
    assert prepared["printed"] == started["printed"]
    assert bitwise_form(prepared) == bitwise_form(started)
