"""Whole trials with a real tracking store, the lazy package, and the examples."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_torch import DataLoader, PyTorchTrial
from det_torch._run import run_trial
from torch import nn
from torch.utils.data import TensorDataset

import det_core as det
from det_core import get_cluster_info
from det_core.config import load_config, parse_config, sample_hyperparameters
from det_core.interfaces.tracking import TrackingStore
from det_core.testing.runs import begin_run
from det_core.tracking import open_store
from det_core.trial import load_trial_class

EXAMPLES = Path(__file__).parents[3] / "examples"
INPUTS = torch.arange(40.0).reshape(20, 2) / 40

Train = Callable[..., None]


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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    with open_store() as opened:
        yield opened
    get_cluster_info.cache_clear()


@pytest.fixture
def train(store: TrackingStore, tmp_path: Path) -> Train:
    """Return a function that runs a trial, a new one unless an id is given, and returns the trial's id."""

    def start(trial_class: type[PyTorchTrial], config: dict[str, Any], trial_id: int | None = None) -> int:
        parsed = parse_config(config)
        config, hparams = parsed.dump(), sample_hyperparameters(parsed.hyperparameters, random.Random(0))
        if trial_id is None:
            experiment = store.create_experiment(config=config)
            trial_id = store.create_trial(experiment.id, hparams=hparams, seed=5).id
        begin_run(store, trial_id, tmp_path)
        get_cluster_info.cache_clear()
        with det.core.init() as core:
            run_trial(trial_class, core)
        return trial_id

    return start


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


@pytest.mark.parametrize("name", ["digits_pytorch", "digits_pytorch_context"])
@pytest.mark.integration
def test_examples_reach_97_percent(
    name: str, train: Train, store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(EXAMPLES / name / "const.yaml")
    monkeypatch.syspath_prepend(EXAMPLES / name)
    monkeypatch.delitem(sys.modules, "model_def", raising=False)
    importlib.invalidate_caches()
    trial_class = load_trial_class(str(config.entrypoint))
    trial_id = train(trial_class, config.dump())
    validations = list(store.metrics(trial_id, group="validation"))
    assert len(validations) == 20
    assert validations[-1].metrics["accuracy"] >= 0.97
    assert set(validations[-1].metrics) == {"validation_loss", "accuracy"}


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
    benchmark = EXAMPLES.parent / "benchmarks" / "first_call.py"
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        result = subprocess.run([sys.executable, benchmark, "15"], capture_output=True, text=True, timeout=120)
    finally:
        busy.kill()
        busy.wait()
    with_det = result.stdout.splitlines()[-1]
    assert with_det.startswith("with det_torch"), result.stderr
    assert with_det.split()[2] == "0", result.stdout
