"""Workers on several slots are forks of a process that has imported torch, and train as new processes do, bitwise."""

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
import gc, hashlib, os, random, signal
from pathlib import Path
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
        assert os.getsid(0) == os.getpid()
        print("random", random.random(), np.random.rand(), torch.rand(1).item())
        torch.manual_seed(3)
        large = torch.randn(700, 700)
        products = large @ large, torch.from_numpy(large.numpy() @ large.numpy())
        print("threads", torch.get_num_threads(), *map(digest, products))
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "TORCHELASTIC_MAX_RESTARTS")
        # The import of a module that is prepared, and that a trial imports later, sets one more.
        print(*(os.environ[name] for name in names), *sorted(os.environ.keys() - {"TORCHINDUCTOR_CACHE_DIR"}))
        layers = [torch.nn.Linear(600, 300), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(300, 10)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.data = TensorDataset(torch.randn(256, 600), torch.randint(10, (256,)))

    def build_training_data_loader(self):
        return DataLoader(self.data, batch_size=32, shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(self.data, batch_size=128)

    def train_batch(self, batch, epoch_idx, batch_idx):
        killed = Path(self.context.get_data_config()["killed"])
        if batch_idx == 5 and self.context.distributed.rank == 1 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        inputs, labels = batch
        return {"validation_loss": torch.nn.functional.cross_entropy(self.model(inputs), labels)}
"""


def train(directory: Path, *, is_prepared: bool) -> dict[str, Any]:
    """Train the trial on two slots, kill a worker, and return all that it has reported, printed and saved."""
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "model_def.py").write_text(TRIAL)
    config = {
        "entrypoint": "model_def:Trial",
        "hyperparameters": {"global_batch_size": 64, "is_prepared": is_prepared},
        "data": {"killed": str(directory / f"killed-{is_prepared}")},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 8}},
        "min_checkpoint_period": {"batches": 2},
        "resources": {"slots_per_trial": 2},
        "distributed": {"backend": "torch_distributed"},
        "launcher": {"type": "local", "slots": 2, **({} if is_prepared else {"prepare": False})},
        "max_restarts": 1,
        "reproducibility": {"experiment_seed": 1},
    }
    with open_store() as store:
        (trial,) = run_experiment(store, config, code)
        assert trial.restarts == 1
        reports = [(one.group, one.metrics, one.batch_metrics) for one in store.metrics(trial.id)]
        printed = sorted((line.rank, line.log) for line in store.logs(trial.id) if line.stdtype == "stdout")
        saved = store.checkpoints(trial_id=trial.id)[-1]
    state = torch.load(Path(saved.storage["container_path"], saved.uuid, "state_dict.pth"), weights_only=True)
    return {"reports": reports, "printed": printed, "models": state["models_state_dict"]}


def test_workers_on_several_slots_are_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    printed = train(tmp_path, is_prepared=True)["printed"]
    assert len(printed) == 2 * 2 * 3, "two runs of two workers"


@pytest.mark.slow
def test_prepared_workers_equal_started_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    started, prepared = (train(tmp_path, is_prepared=is_prepared) for is_prepared in (False, True))
    assert prepared["printed"] == started["printed"]
    assert bitwise_form(prepared) == bitwise_form(started)
