"""PyTorch trials in the SDK of det-core, which makes, trains, tests and loads them."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from safetensors.torch import load_file

from det_core import get_cluster_info
from det_core.errors import InvalidTrial
from det_core.experimental import Checkpoint, create, create_trial_instance
from det_core.experimental.client import get_model
from det_core.trial import load_trial_class

MODEL_DEF = """
import det_torch
import torch
from torch.utils.data import TensorDataset

DATA = TensorDataset(torch.arange(12.0).reshape(6, 2))


class FrameworkDrives(det_torch.PyTorchTrial):
    def build_model(self):
        return torch.nn.Linear(2, self.context.get_hparam("width"))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.001)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return {"loss": model(batch[0]).pow(2).mean()}

    def evaluate_batch(self, batch, model):
        return {"size": model(batch[0]).pow(2).mean()}

    def build_training_data_loader(self):
        return det_torch.DataLoader(DATA, batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader


class UserDrives(FrameworkDrives):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(self.build_model())
        self.sgd = context.wrap_optimizer(self.optimizer(self.model))

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"size": self.model(batch[0]).pow(2).mean()}
"""
DOCS = Path(__file__).parents[3] / "docs"
CONFIG = {
    "hyperparameters": {"global_batch_size": 2, "width": 3},
    "searcher": {"name": "single", "metric": "size", "max_length": {"batches": 5}},
}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which contains ``model_def.py``."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    for name in ("DET_INFO_DIR", "DET_MASTER", "DET_MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    get_cluster_info.cache_clear()
    work = tmp_path / "work"
    work.mkdir()
    (work / "model_def.py").write_text(MODEL_DEF)
    monkeypatch.syspath_prepend(work)
    monkeypatch.chdir(work)
    monkeypatch.delitem(sys.modules, "model_def", raising=False)
    return work


@pytest.mark.integration
def test_a_trial_is_trained_and_loaded_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial_class = load_trial_class("model_def:FrameworkDrives")
    best = create(trial_class, CONFIG, local=True).top_checkpoint()
    assert (best.batch_number, str(best.framework).partition("-")[0]) == (5, "torch")
    model = best.load(map_location="cpu")
    assert isinstance(model, torch.nn.Linear)
    saved = torch.load(Path(best.download(), "state_dict.pth"), weights_only=True)["models_state_dict"][0]
    assert torch.equal(model.weight, saved["weight"])
    assert model.weight.shape == (3, 2)
    leave(tmp_path, monkeypatch)
    elsewhere = best.load()
    assert type(elsewhere) is torch.nn.Linear and torch.equal(elsewhere.weight, saved["weight"])
    assert "model_def" not in sys.modules
    with pytest.raises(
        InvalidTrial, match=r"'model_def:FrameworkDrives', which cannot be .*Checkpoint\.load_from_path\("
    ):
        Checkpoint.load_from_path(str(best.download()))


def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a directory from which the trial's code cannot be imported."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != Path.cwd()])
    monkeypatch.delitem(sys.modules, "model_def", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def test_a_trial_that_wraps_its_models_is_loaded_as_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class is defined in a notebook, trained in this process, and passed to the load."""
    trial_class: Any = load_trial_class("model_def:UserDrives")
    monkeypatch.setattr(trial_class, "__module__", "__main__")
    monkeypatch.setattr("builtins.__IPYTHON__", True, raising=False)
    path = create(trial_class, CONFIG, local=True).top_checkpoint().download()
    trial = Checkpoint.load_from_path(path, trial_class=trial_class)
    assert isinstance(trial, det_torch.PyTorchTrial)
    assert not trial.context.models[0].training

    class NeedsMore(trial_class):  # type: ignore[misc]
        def __init__(self, context: Any, scale: int) -> None:
            super().__init__(context)
            self.scale = scale

    load = partial(Checkpoint.load_from_path, path, trial_class=NeedsMore)
    assert load(trial_kwargs={"scale": 2}).scale == 2
    with pytest.raises(InvalidTrial, match=r"'scale'.*Checkpoint\.load_from_path\(path, trial_class=.*, trial_kwargs="):
        load()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'scale'; it takes .*'trial_kwargs'"):
        load(scale=2)
    with pytest.raises(ValueError, match="map_location is 5; expected a device"):
        load(map_location=5)


@pytest.mark.parametrize("name", ["FrameworkDrives", "UserDrives"])
def test_a_trial_is_tested_in_this_process(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    create(load_trial_class(f"model_def:{name}"), CONFIG, local=True, test=True)
    assert "The test passed: training metrics {'loss': " in capsys.readouterr().out


def test_a_trial_instance_trains_a_batch() -> None:
    trial: Any = create_trial_instance(
        load_trial_class("model_def:UserDrives"), "/nowhere", hparams={"global_batch_size": 2, "width": 4}
    )
    batch = next(iter(trial.build_training_data_loader()))
    before = trial.model.weight.clone()
    assert trial.train_batch(batch, 0, 0)["loss"] > 0
    assert not torch.equal(trial.model.weight, before)


def snippets_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.integration
def test_the_code_in_the_document_runs(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, *snippets = snippets_of("sdk.md")
    (work / "model_def.py").write_text(module)
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(compile(snippet, "docs/sdk.md", "exec"), names)
    assert names["model"].weight.item() == pytest.approx(3, abs=0.2)
    assert get_model("line").metadata == {"stage": "production"}
    out, err = capsys.readouterr()
    assert "trial 1: batch 200 validation validation_loss=" in out
    assert "det: experiment 2 (by hand)" in err and "det:   best accuracy=0.6667 at batch 3" in err


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_guide_to_exports_runs(work: Path) -> None:
    data, module, _ = snippets_of("start.md")
    exec(data, {})
    (work / "model_def.py").write_text(module)
    hparams = {"global_batch_size": 32, "hidden": 4, "lr": 0.01}
    searcher = {"metric": "validation_error"}
    with det_torch.init(hparams=hparams, exp_conf={"searcher": searcher}, quiet=True) as context:
        trial = load_trial_class("model_def:TableTrial")(context)
        det_torch.Trainer(trial, context).fit(max_length=det_torch.Batch(1))
    has_onnx = find_spec("onnxscript")  # not beside TensorFlow 2.15; make versions installs it
    names: dict[str, Any] = {}
    for snippet in snippets_of("guides/export.md"):
        if has_onnx or "onnx" not in snippet:
            exec(compile(snippet, "docs/guides/export.md", "exec"), names)
    trained = trial.context.get_model().state_dict()
    for exported in (names["weights"], torch.load("houses_torch/model.pth"), load_file("houses/model.safetensors")):
        assert exported.keys() == trained.keys() and all(torch.equal(exported[name], trained[name]) for name in trained)
    if has_onnx:
        expected = names["model"](names["houses"][:1]).detach().numpy()
        assert names["prices"] == pytest.approx(expected, rel=1e-5)
