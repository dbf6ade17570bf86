"""Trials are loaded from checkpoints of this release and of old ones, with and without code."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import det_torch
import pytest
import torch
from det_torch import Batch, PyTorchTrial, Trainer, load, load_trial_from_checkpoint_path
from torch import nn
from torch.utils.data import TensorDataset

from det_core import get_cluster_info
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, InvalidTrial, UntrustedCheckpoint
from det_core.tracking import open_store

OLD = Path(__file__).parent / "old"

MODEL_DEF = """
import det_torch
import numpy as np
import torch
from scale_def import SCALE
from torch.utils.data import TensorDataset, random_split

DATA = TensorDataset(torch.rand(12, 2), torch.rand(12, 1))


class Layer(torch.nn.Linear):
    extra = None

    def get_extra_state(self):
        return {"kinds": {frozenset({"a"})}, "mean": np.float32(0.5)}

    def set_extra_state(self, state):
        self.extra = state


class FrameworkDrives(det_torch.PyTorchTrial):
    scale = SCALE

    def build_model(self):
        return torch.nn.Sequential(torch.nn.Linear(2, self.context.get_hparam("width")), torch.nn.Dropout(0.5))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        return {"loss": model(batch[0]).pow(2).mean()}

    def evaluate_batch(self, batch, model):
        return {"validation_loss": model(batch[0]).pow(2).mean()}

    def build_training_data_loader(self):
        return det_torch.DataLoader(DATA, batch_size=4)

    build_validation_data_loader = build_training_data_loader


class Holds(det_torch.PyTorchCallback):
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": [self.value]}

    def load_state_dict(self, state_dict):
        pass


class Averages(FrameworkDrives):
    def build_callbacks(self):
        return {"average": Holds(torch.ones(2)), "count": Holds(3)}


class UserDrives(FrameworkDrives):
    def __init__(self, context, bias=True):
        self.context = context
        self.training, self.held_out = random_split(DATA, [8, 4])
        self.model = context.wrap_model(Layer(2, 3, bias=bias))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch[0]).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"validation_loss": self.model(batch[0]).pow(2).mean()}
"""


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory on the path that contains ``model_def.py``."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DET_INFO_DIR", raising=False)
    get_cluster_info.cache_clear()
    directory = tmp_path / "source"
    write_code(directory, scale=1)
    monkeypatch.syspath_prepend(directory)
    yield directory
    for name in ("model_def", "scale_def"):
        sys.modules.pop(name, None)
    get_cluster_info.cache_clear()


def write_code(directory: Path, *, scale: int) -> None:
    directory.mkdir()
    (directory / "model_def.py").write_text(MODEL_DEF)
    (directory / "scale_def.py").write_text(f"SCALE = {scale}\n")


def train(name: str, **trial_kwargs: Any) -> tuple[PyTorchTrial, Path]:
    """Train a trial for three batches, and return it and its checkpoint."""
    import model_def  # type: ignore[import-not-found]

    hparams = {"global_batch_size": 4, "width": 5}
    with det_torch.init(hparams=hparams, exp_conf={"data": {"path": "somewhere"}}) as context:
        trial: PyTorchTrial = getattr(model_def, name)(context, **trial_kwargs)
        Trainer(trial, context).fit(max_length=Batch(3), checkpoint_policy="none")
    with open_store() as store:
        saved = store.checkpoints(trial_id=context.get_trial_id())[-1]
    return trial, Path(saved.storage["container_path"], saved.uuid)


def weights(trial: PyTorchTrial) -> dict[str, Any]:
    states = [model.state_dict() for model in trial.context.models]
    return {key: value.tolist() for state in states for key, value in state.items() if hasattr(value, "tolist")}


def change(path: Path, **description: Any) -> None:
    """Change the description of the trial in a checkpoint."""
    file = path / "load_data.json"
    changed = {**json.loads(file.read_text()), **description}
    file.chmod(0o644)
    file.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))


def test_tensors_of_callbacks_that_are_not_loaded_are_named(caplog: pytest.LogCaptureFixture) -> None:
    load(train("FrameworkDrives")[1])
    assert not [message for message in caplog.messages if "are not loaded" in message]
    load(train("Averages")[1])
    [warning] = [message for message in caplog.messages if "are not loaded" in message]
    assert "the states of the callbacks 'average' hold tensors" in warning


@pytest.mark.parametrize("name", ["FrameworkDrives", "UserDrives"])
def test_a_trial_predicts_as_when_it_was_saved(name: str) -> None:
    trained, path = train(name)
    loaded = load(path)
    assert type(loaded) is type(trained)
    assert weights(loaded) == weights(trained)
    assert loaded.context.get_hparams() == {"global_batch_size": 4, "width": 5}
    assert loaded.context.get_data_config() == {"path": "somewhere"}
    (model,) = loaded.context.models
    assert not model.training
    inputs = torch.rand(3, 2)
    assert torch.equal(model(inputs), trained.context.models[0].eval()(inputs))


def test_a_loaded_trial_draws_the_same_and_leaves_the_generators_unchanged() -> None:
    trained, path = train("UserDrives")
    states = torch.get_rng_state(), random.getstate()
    loaded = load(path)
    assert loaded.held_out.indices == trained.held_out.indices  # type: ignore[attr-defined]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_extra_state_of_modules_has_its_original_types() -> None:
    trained, path = train("UserDrives")
    (model,) = load(path).context.models
    assert model.extra == trained.context.models[0].get_extra_state()  # type: ignore[operator]


def test_arguments_of_the_class_and_of_torch_load_are_passed_on() -> None:
    trained, path = train("UserDrives", bias=False)
    assert weights(load(path, bias=False)) == weights(trained)
    by_old_name = load_trial_from_checkpoint_path(
        path, None, {"bias": False}, {"map_location": torch.device("cpu"), "weights_only": False}
    )
    assert weights(by_old_name) == weights(trained)
    with pytest.raises(ValueError, match="encoding.* expected map_location, a device"):
        load_trial_from_checkpoint_path(path, torch_load_kwargs={"encoding": "latin1"})
    with pytest.raises(ValueError, match="expected map_location, a device"):
        load_trial_from_checkpoint_path(path, torch_load_kwargs={"map_location": {"cuda:0": "cpu"}})
    with pytest.raises(RuntimeError, match=r"Missing key.*bias"):
        load(path)


def test_another_number_of_models_is_an_error() -> None:
    class Two(PyTorchTrial):
        def __init__(self, context: Any) -> None:
            self.models = [context.wrap_model(nn.Linear(2, 3)) for _ in range(2)]

        train_batch = build_training_data_loader = build_validation_data_loader = None  # type: ignore[assignment]

    _, path = train("UserDrives")
    with pytest.raises(InvalidTrial, match="the checkpoint has 1 models, but the trial has 2"):
        load(path, Two)


def test_code_of_the_checkpoint_runs_only_if_trusted(tmp_path: Path) -> None:
    here = train("UserDrives")[0]
    paths = []
    for scale in (2, 3):
        _, path = train("UserDrives")
        path.chmod(0o755)
        write_code(path / "code", scale=scale)
        paths.append(path)
    for refused in (load, load_trial_from_checkpoint_path):
        with pytest.raises(UntrustedCheckpoint, match=r"code of its trial 'model_def:UserDrives'.* or trust=True"):
            refused(paths[0])
    assert load(paths[0], type(here)).scale == 1  # type: ignore[attr-defined]
    before = sys.path[:], dict(sys.modules)
    assert [load(path, trust=True).scale for path in paths] == [2, 3]  # type: ignore[attr-defined]
    assert load_trial_from_checkpoint_path(paths[0], torch_load_kwargs={"weights_only": False}).scale == 2  # type: ignore[attr-defined]
    assert (sys.path, {name: sys.modules[name] for name in before[1]}) == before
    assert list(paths[0].rglob("__pycache__")) == []


def test_machines_in_the_config_of_a_checkpoint_do_not_matter() -> None:
    trained, path = train("UserDrives")
    config = {
        "searcher": {"name": "not_installed", "metric": "validation_loss"},
        "checkpoint_storage": {"type": "hdfs", "hdfs_url": "http://nowhere"},
        "resources": {"slots_per_trial": 64},
        "data": {"path": "there"},
        "name": None,
    }
    change(path, experiment_config=config)
    loaded = load(path)
    assert weights(loaded) == weights(trained)
    assert loaded.context.get_data_config() == {"path": "there"}
    assert loaded.context.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "gone_def:Trial",
            "to the trial 'gone_def:Trial', which cannot be imported here: .*gone_def.*load.path, MyTrial.",
        ),
        ("model_def:Gone", "no 'Gone'"),
        ("json:JSONDecoder", "which is not a trial"),
        (None, "does not name its trial class; pass the class: load.path, MyTrial."),
    ],
)
def test_a_class_that_cannot_be_imported_is_an_error(spec: str | None, expected: str) -> None:
    trained, path = train("UserDrives")
    change(path, trial_cls_spec=spec, experiment_config={})
    with pytest.raises(InvalidTrial, match=expected):
        load(path)
    assert weights(load(path, type(trained))) == weights(trained)


def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="gone is not a directory"):
        load(tmp_path / "gone")
    with pytest.raises(CheckpointNotFound, match="is not a checkpoint of a PyTorchTrial"):
        load(tmp_path, PyTorchTrial)


class Old(PyTorchTrial):
    """Trial with the model of ``old/make.py``."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        raise AssertionError("nothing is trained")

    train_batch = evaluate_batch = optimizer  # type: ignore[assignment]

    def build_training_data_loader(self) -> Any:
        return det_torch.DataLoader(TensorDataset(torch.ones(4, 3)))

    build_validation_data_loader = build_training_data_loader


@pytest.mark.parametrize("release", ["0.12.0", "0.12.13", "0.13.13", "0.17.15", "0.19.10", "0.30.0", "0.38.1"])
def test_checkpoints_of_old_releases_are_loaded(release: str) -> None:
    loaded = load(str(OLD / release), Old)
    model = load_trial_from_checkpoint_path(str(OLD / release), Old)
    assert isinstance(model, nn.Sequential)
    assert all(
        torch.equal(value, loaded.context.models[0].state_dict()[key]) for key, value in model.state_dict().items()
    )
    assert weights(loaded) == json.loads((OLD / release / "expected.json").read_text())["model"]
    assert loaded.context.models[0](torch.ones(2, 3)).shape == (2, 1)


def test_the_metadata_of_an_old_download_names_class_and_hyperparameters(tmp_path: Path) -> None:
    trained, path = train("FrameworkDrives")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "state_dict.pth").write_bytes((path / "state_dict.pth").read_bytes())
    said = {"hparams": {"width": 5}, "experiment_config": {"entrypoint": "model_def:FrameworkDrives"}}
    (tmp_path / "old" / "metadata.json").write_text(json.dumps(said))
    assert weights(load(tmp_path / "old")) == weights(trained)


@pytest.mark.parametrize("name", ["load_data.json", "metadata.json"])
def test_a_damaged_description_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[]")
    with pytest.raises(CheckpointCorrupt, match=f"{name} is damaged: expected a JSON object, found \\[\\]"):
        load(tmp_path)
