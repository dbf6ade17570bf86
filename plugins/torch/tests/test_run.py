"""Whole trials with a real tracking store, and the lazy package."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_testing import is_soak
from det_torch import DataLoader, PyTorchTrial
from torch import nn
from torch.utils.data import TensorDataset

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

INPUTS = torch.arange(40.0).reshape(20, 2) / 40

Train = Callable[..., int]


class Linear(PyTorchTrial):
    """Trial that receives SIGTERM at the batch in ``data.signal_at``."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.2), nn.Linear(2, 1))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == self.context.get_data_config().get("signal_at"):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": (model(batch[0]) - batch[1]).pow(2).mean()}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": (model(batch[0]) - batch[1]).pow(2).mean()}

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(INPUTS, INPUTS.sum(1, keepdim=True)), batch_size=4, shuffle=True)

    build_validation_data_loader = build_training_data_loader


def history(store: TrackingStore, trial_id: int) -> list[Any]:
    return [(r.group, r.steps_completed, r.metrics, r.batch_metrics) for r in store.metrics(trial_id)]


def final_state(store: TrackingStore, trial_id: int, fingerprint: Any) -> Any:
    checkpoint = store.checkpoints(trial_id=trial_id)[-1]
    return fingerprint(Path(checkpoint.storage["container_path"]) / checkpoint.uuid)


def test_a_trial_preempted_between_two_reports_resumes_exactly(
    train: Train, store: TrackingStore, example_config: dict[str, Any], fingerprint: Any
) -> None:
    undisturbed = train(Linear, example_config)
    resumed = train(Linear, {**example_config, "data": {"signal_at": 5}})
    assert store.trial(resumed).steps_completed == 6
    train(Linear, example_config, resumed)
    assert store.trial(resumed).steps_completed == 10
    assert history(store, resumed) == history(store, undisturbed)
    assert final_state(store, resumed, fingerprint) == final_state(store, undisturbed, fingerprint)
    metadata = store.checkpoints(trial_id=resumed)[-1].metadata
    assert metadata["framework"] == f"torch-{torch.__version__}"


MODEL_DEF = """
import atexit, sys
import torch
from det_torch import DataLoader, PyTorchTrial

class Linear(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(2, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch).square().mean()}

    def build_training_data_loader(self):
        return DataLoader(torch.randn(8, 2), batch_size=2)

    build_validation_data_loader = build_training_data_loader

atexit.register(lambda: print("imported", *sys.modules))
"""


@pytest.mark.integration
def test_a_worker_opens_no_store_and_validates_no_config(store: TrackingStore, tmp_path: Path) -> None:
    """Its runner does both, so that a trial starts fast."""
    (tmp_path / "model_def.py").write_text(MODEL_DEF)
    searcher = {"name": "single", "metric": "validation_loss", "max_length": {"batches": 4}}
    config = {"entrypoint": "model_def:Linear", "searcher": searcher, "min_checkpoint_period": {"batches": 2}}
    experiment = submit_experiment(store, parse_config(config), tmp_path)
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    lines = [line.log for line in store.logs(trial.id)]
    (imported,) = (set(line.split()) for line in lines if line.startswith("imported "))
    assert not imported & {"sqlalchemy", "pydantic", "pathspec", "det_core.launch.local"}
    assert len([name for name in imported if name.partition(".")[0] == "det_core"]) <= 113


def test_importing_the_package_and_the_plugin_does_not_import_torch() -> None:
    code = "import sys, det_torch, det_torch.plugin; print(sorted({'torch', 'numpy', 'sqlalchemy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_initializes_mkl_first(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or import_module(name))
    for name, module in det_torch._EXPORTS.items():
        imported.clear()
        det_torch.__getattr__(name)
        assert imported == ["det_torch._mkl", module]


@pytest.mark.integration
@pytest.mark.slow
def test_the_first_steps_of_a_process_are_exact() -> None:
    benchmark, seconds = Path(__file__).parents[3] / "benchmarks" / "first_call.py", "30" if is_soak() else "4"
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        result = subprocess.run([sys.executable, benchmark, seconds], capture_output=True, text=True, timeout=240)
    finally:
        busy.kill()
        busy.wait()
    with_det = result.stdout.splitlines()[-1]
    assert with_det.startswith("with det_torch"), result.stderr
    assert with_det.split()[2] == "0", result.stdout
