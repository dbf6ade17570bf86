"""Checkpoints that releases 0.12 to 0.38 of the original saved (see old/make.py), and some constructed here."""

from __future__ import annotations

import enum
import json
import logging
import pickle
import random
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from det_torch._checkpoints._old_layouts import check_count
from det_torch._checkpoints._reader import read_batches_trained, read_checkpoint
from det_torch._random import rng_state, set_rng_state
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

from det_core.errors import CheckpointCorrupt, CheckpointNotFound, InvalidTrial, StorageError, UntrustedCheckpoint

OLD = Path(__file__).parent / "old"
RELEASES = sorted(entry.name for entry in OLD.iterdir() if entry.name.startswith("0.") and "-" not in entry.name)
ONE_CYCLE = OLD / "0.19.10-onecycle"
ours = pytest.mark.parametrize("release", RELEASES)


def test_every_minor_release_is_there() -> None:
    assert {int(release.split(".")[1]) for release in RELEASES} == set(range(12, 39))


@ours
@pytest.mark.parametrize("trust", [False, True])
def test_the_state_equals_what_the_release_had_in_memory(release: str, trust: bool) -> None:
    state, held = read_checkpoint(OLD / release, trust=trust), _held(release)
    model, optimizer, _ = _resumed(state)
    assert {name: value.tolist() for name, value in model.state_dict().items()} == held["model"]
    assert [one["exp_avg"].tolist() for one in optimizer.state.values()] == held["momenta"]
    assert optimizer.param_groups[0]["lr"] == held["learning_rate"]
    assert state["callbacks"] == ({} if release == "0.12.0" else {"counter": {"counted": 3}})
    assert state["scaler_state_dict"] is None


@ours
def test_the_number_of_trained_batches_is_read(release: str) -> None:
    assert read_batches_trained(OLD / release) == (5 if _line(release) >= 17 else None)


@ours
def test_training_continues(release: str) -> None:
    model, optimizer, scheduler = _resumed(read_checkpoint(OLD / release))
    before = [parameter.clone() for parameter in model.parameters()]
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert {int(one["step"]) for one in optimizer.state.values()} == {6}
    assert scheduler.get_last_lr() == [pytest.approx(0.01 * 0.9**6)]
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@ours
@pytest.mark.usefixtures("generators")
def test_random_numbers_continue(release: str) -> None:
    state = read_checkpoint(OLD / release)["rng_state"]
    if release == "0.12.0":  # this release did not save it
        assert state is None
        return
    set_rng_state(state)
    assert [random.random(), np.random.random(), torch.rand(1).item()] == _held(release)["drawn_next"]


def test_metadata_alone_has_the_number_of_trained_batches(tmp_path: Path) -> None:
    for said, expected in [
        ({"steps_completed": 0}, 0),
        ({"metadata": {"steps_completed": 7}}, 7),
        ({"steps_completed": "7", "metadata": None}, None),
        ([], None),
    ]:
        (tmp_path / "metadata.json").write_text(json.dumps(said))
        assert read_batches_trained(tmp_path) == expected


def test_one_cycle_of_old_torch_needs_trust(tmp_path: Path) -> None:
    with pytest.raises(UntrustedCheckpoint, match=r"builtins\.getattr, .*OneCycleLR.*trust=True"):
        read_checkpoint(ONE_CYCLE)
    assert read_batches_trained(ONE_CYCLE) == 5
    state = read_checkpoint(ONE_CYCLE, trust=True)
    model, optimizer, _ = _parts()
    scheduler = OneCycleLR(optimizer, 0.01, total_steps=50)
    model.load_state_dict(state["models_state_dict"][0])
    scheduler.load_state_dict(state["lr_schedulers_state_dict"][0])
    scheduler.step()
    assert scheduler.last_epoch == 6
    assert torch.load(_save(tmp_path, state), weights_only=True).keys() == state.keys()


# What follows is constructed: no release wrote these files.


@pytest.mark.parametrize("place", ["determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt"])
def test_old_places_of_the_state_are_read(place: str, tmp_path: Path) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    shutil.copy(OLD / "0.12.0" / "state_dict.pth", tmp_path / place)
    torch.save(_Touch(tmp_path / "ran"), tmp_path / "model.pth")
    assert read_checkpoint(tmp_path)["models_state_dict"][0].keys() == _held("0.12.0")["model"].keys()
    assert not (tmp_path / "ran").exists()


def test_the_prefix_of_a_distributed_model_is_removed(tmp_path: Path) -> None:
    wrapped = {f"module.{name}": value for name, value in _parts()[0].state_dict().items()}
    _save(tmp_path, {"models_state_dict": [wrapped]})
    _parts()[0].load_state_dict(read_checkpoint(tmp_path)["models_state_dict"][0])


def test_a_model_may_be_called_module(tmp_path: Path) -> None:
    saved = {"module.weight": torch.ones(1)}
    _save(tmp_path, {"models_state_dict": [saved], "rng_state": rng_state(), "gradients": [{}]})
    state = read_checkpoint(tmp_path)
    assert state["models_state_dict"] == [saved]
    assert state["gradients"] == [{}]


def test_state_of_apex_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _save(tmp_path, {"models_state_dict": [], "amp_state": {"loss_scaler0": {"loss_scale": 2.0}}})
    with caplog.at_level(logging.WARNING, "det.torch"):
        assert "amp_state" not in read_checkpoint(tmp_path)
    assert [record.args for record in caplog.records] == [("amp_state",)]


def test_a_file_from_before_zip_is_read(tmp_path: Path) -> None:
    saved = {
        "models_state_dict": [{"weight": torch.arange(3.0)}],
        "callbacks": {"a": {"seen": {1, 2}, "mean": np.float64(0.5)}},
    }
    _save(tmp_path, saved, _use_new_zipfile_serialization=False)
    state = read_checkpoint(tmp_path)
    assert state["models_state_dict"][0]["weight"].tolist() == [0, 1, 2]
    assert state["callbacks"] == saved["callbacks"]


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}])
def test_code_runs_only_if_trusted(options: dict[str, Any], tmp_path: Path) -> None:
    _save(tmp_path, {"models_state_dict": [], "callbacks": {"evil": _Touch(tmp_path / "ran")}}, **options)
    with pytest.raises(UntrustedCheckpoint, match=rf"{__name__.rpartition('.')[2]}._touch.*trust=True"):
        read_checkpoint(tmp_path)
    assert not (tmp_path / "ran").exists()
    read_checkpoint(tmp_path, trust=True)
    assert (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_values_in_newer_pickles_need_trust(tmp_path: Path) -> None:
    _save(tmp_path, {"models_state_dict": [{"weight": torch.ones(1)}]}, pickle_protocol=4)
    with pytest.raises(UntrustedCheckpoint, match="instructions beyond"):
        read_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path, trust=True)["models_state_dict"] == [{"weight": torch.ones(1)}]


@pytest.mark.parametrize("name", ["trial_state.pkl", "workload_sequencer.pkl"])
def test_code_in_the_count_of_batches_runs_only_if_trusted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pickle.dumps({"batches_trained": 3, "evil": _Touch(tmp_path / "ran")}))
    with pytest.raises(UntrustedCheckpoint, match=r"_touch.*trust=True"):
        read_batches_trained(tmp_path)
    assert not (tmp_path / "ran").exists()
    assert read_batches_trained(tmp_path, trust=True) == 3
    assert (tmp_path / "ran").exists()


def test_a_pickled_function_needs_trust(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    _save(tmp_path, {"models_state_dict": [], "callbacks": {"f": {"f": lambda x: x + 1}}}, pickle_module=cloudpickle)
    with pytest.raises(UntrustedCheckpoint, match=r"cloudpickle"):
        read_checkpoint(tmp_path)
    assert read_checkpoint(tmp_path, trust=True)["callbacks"]["f"]["f"](1) == 2


@pytest.mark.parametrize("trust", [False, True])
def test_objects_of_the_original_are_ignored(
    trust: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = types.ModuleType("determined.nowhere")
    gone.Mode = enum.Enum("Mode", "A B", module="determined.nowhere")  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "determined", types.ModuleType("determined"))
        patch.setitem(sys.modules, "determined.nowhere", gone)
        _save(tmp_path, {"models_state_dict": [], "callbacks": {"a": {"mode": gone.Mode.A, "count": 2}}})
    with caplog.at_level(logging.WARNING, "det.torch"):
        assert read_checkpoint(tmp_path, trust=trust)["callbacks"] == {"a": {"count": 2}}
    assert "state.callbacks.a.mode" in caplog.text


def test_missing_code_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "vanished", types.ModuleType("vanished"))
        patch.setattr(_Kept, "__module__", "vanished")
        patch.setattr(sys.modules["vanished"], "_Kept", _Kept, raising=False)
        _save(tmp_path, {"models_state_dict": [], "callbacks": {"kept": _Kept()}})
    with pytest.raises(StorageError, match=r"No module named 'vanished'.*can be imported"):
        read_checkpoint(tmp_path, trust=True)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("share", [0, 0.3, 0.9])
def test_a_damaged_state_is_an_error(options: dict[str, Any], trust: bool, share: float, tmp_path: Path) -> None:
    file = _save(tmp_path, {"models_state_dict": [{"weight": torch.ones(3)}]}, **options)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(CheckpointCorrupt, match=r"state_dict\.pth"):
        read_checkpoint(tmp_path, trust=trust)


@pytest.mark.parametrize("name", ["metadata.json", "trial_state.pkl"])
def test_a_damaged_count_of_batches_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x03}q\x00")
    with pytest.raises(CheckpointCorrupt, match=name):
        read_batches_trained(tmp_path)


def test_a_directory_without_a_state_is_not_a_checkpoint(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pth")
    with pytest.raises(CheckpointNotFound, match=r"none of state_dict\.pth"):
        read_checkpoint(tmp_path)
    assert read_batches_trained(tmp_path) is None


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        ([1, 2], "type list"),
        ({"model_state_dict": {}, "models_state_dict": [{}]}, "both model_state_dict and models_state_dict"),
        ({"optimizers_state_dict": []}, "holds no models"),
    ],
)
def test_contradictory_states_are_corrupt(saved: Any, words: str, tmp_path: Path) -> None:
    _save(tmp_path, saved)
    with pytest.raises(CheckpointCorrupt, match=words):
        read_checkpoint(tmp_path)


def test_models_in_safetensors_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_files = pytest.importorskip("safetensors.torch")
    _save(tmp_path, {"optimizers_state_dict": []})
    for number in range(11):
        torch_files.save_file({"weight": torch.full((2,), float(number))}, tmp_path / f"model_{number}.safetensors")
    assert [model["weight"][0].item() for model in read_checkpoint(tmp_path)["models_state_dict"]] == list(range(11))
    (tmp_path / "model_3.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(CheckpointCorrupt, match="safetensors"):
        read_checkpoint(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(StorageError, match="pip install safetensors"):
        read_checkpoint(tmp_path)


def test_the_number_of_models_is_checked() -> None:
    check_count("models", [1], [2])
    with pytest.raises(InvalidTrial, match="the checkpoint has 2 models, but the trial has 1"):
        check_count("models", [1], [2, 3])


@pytest.fixture
def generators() -> Iterator[None]:
    state = rng_state()
    yield
    set_rng_state(state)


class _Kept:
    """Class that a user's module could define."""


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return _touch, (str(self.path),)


def _touch(path: str) -> None:
    Path(path).touch()


def _line(release: str) -> int:
    return int(release.split(".")[1])


def _held(release: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((OLD / release / "expected.json").read_text())
    return held


def _save(directory: Path, state: Any, **options: Any) -> Path:
    torch.save(state, directory / "state_dict.pth", **options)
    return directory / "state_dict.pth"


def _parts() -> tuple[torch.nn.Module, torch.optim.Adam, ExponentialLR]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    return model, optimizer, ExponentialLR(optimizer, 0.9)


def _resumed(state: dict[str, Any]) -> tuple[torch.nn.Module, torch.optim.Adam, ExponentialLR]:
    parts = _parts()
    for part, kind in zip(parts, ("models", "optimizers", "lr_schedulers"), strict=True):
        (saved,) = state[f"{kind}_state_dict"]
        part.load_state_dict(saved)
    return parts
