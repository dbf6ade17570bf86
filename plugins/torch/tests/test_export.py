"""Weights that ``det checkpoint export`` writes are read back bit for bit by the libraries of the formats."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from det_testing.comparison import bitwise_form
from det_torch import DataLoader, PyTorchTrial
from det_torch._checkpoints import _exports
from safetensors.torch import load_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils.data import TensorDataset

from det_core.cli import main
from det_core.errors import DetError, InvalidTrial, StorageError
from det_core.experimental import Checkpoint, Determined
from det_core.interfaces.tracking import TrackingStore
from det_core.package_commands import package_command

CONFIG = {
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 2},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
    "resources": {"slots_per_trial": 0},
}


class TwoModels(PyTorchTrial):
    """Trial whose models have tied weights, counters, and views of other types."""

    def __init__(self, context: Any) -> None:
        first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
        first[3].weight = first[2].weight
        second = nn.Linear(2, 5, dtype=torch.float16)
        second.register_buffer("view", torch.arange(12.0).reshape(3, 4).T)
        self.models = [context.wrap_model(model) for model in (first, second)]
        context.wrap_optimizer(torch.optim.SGD(first.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return {"loss": self.models[0](batch).sum()}

    evaluate_batch: Any = lambda self, batch: {"loss": batch.sum()}

    def build_training_data_loader(self) -> Any:
        return DataLoader(TensorDataset(torch.rand(4, 3)).tensors[0], batch_size=2)

    build_validation_data_loader = build_training_data_loader


class Remembering(nn.Linear):
    """Layer with state that is not a tensor."""

    def get_extra_state(self) -> Any:
        return {"seen": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


class OneModel(TwoModels):
    def __init__(self, context: Any) -> None:
        self.models = [context.wrap_model(Remembering(3, 2))]
        context.wrap_optimizer(torch.optim.SGD(self.models[0].parameters(), lr=0.1))


@pytest.fixture
def export(
    store: TrackingStore, train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Path, list[Any]]]:
    """Return a function that trains a trial and exports it, and returns the directory and the weights of the models."""
    monkeypatch.chdir(tmp_path)

    def run(trial_class: type[PyTorchTrial], format: str) -> tuple[Path, list[Any]]:
        row = store.checkpoints(trial_id=train(trial_class, CONFIG))[-1]
        assert main(["checkpoint", "export", row.uuid, "--format", format, "-o", "out"]) == 0
        file = Path(row.storage["container_path"], row.uuid, "state_dict.pth")
        return tmp_path / "out", torch.load(file, weights_only=True)["models_state_dict"]

    return run


@pytest.mark.parametrize(
    ("format", "ending", "read"),
    [("safetensors", ".safetensors", load_file), ("state_dict", ".pth", lambda f: torch.load(f, weights_only=True))],
)
def test_files_hold_the_same_bits(
    export: Callable[..., Any],
    format: str,
    ending: str,
    read: Callable[[Path], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory, models = export(TwoModels, format)
    names = [f"model_0{ending}", f"model_1{ending}"]
    assert capsys.readouterr().out.endswith(f" are in out: {', '.join(names)}\n")
    assert [bitwise_form(dict(read(directory / name))) for name in names] == [bitwise_form({**one}) for one in models]


def load_shares(directory: Path, rank: int, weights: dict[str, torch.Tensor]) -> None:
    """Load the shares of one of two ranks, and write whole tensors beside the export."""
    dist.init_process_group("gloo", init_method=f"file://{directory}.group", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    shares = {
        name: distribute_tensor(torch.zeros_like(value), mesh, [Shard(0)]) if value.dim() else torch.zeros_like(value)
        for name, value in weights.items()
    }
    dcp.load(shares, checkpoint_id=directory)
    assert all(value.to_local().numel() < value.numel() for value in shares.values() if isinstance(value, DTensor))
    whole = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in shares.items()}
    torch.save(whole, f"{directory}.{rank}")
    os._exit(0)  # without the end of pytest


@pytest.mark.integration
def test_shares_of_two_ranks_make_the_same_bits(export: Callable[..., Any]) -> None:
    directory, models = export(TwoModels, "dcp")
    fork = multiprocessing.get_context("fork")
    for name, weights in zip(("model_0", "model_1"), models, strict=True):
        ranks = [fork.Process(target=load_shares, args=(directory / name, rank, weights)) for rank in (0, 1)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            assert process.exitcode == 0
        for rank in (0, 1):
            loaded = torch.load(f"{directory / name}.{rank}", weights_only=True)
            assert bitwise_form(loaded) == bitwise_form({**weights})


def test_a_state_that_is_no_tensor_fits_into_a_state_dict_only(
    export: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, (weights,) = export(OneModel, "state_dict")
    assert bitwise_form(torch.load(directory / "model.pth", weights_only=True)) == bitwise_form(weights)
    (checkpoint,) = Determined().get_trial(1).list_checkpoints()
    for format in ("safetensors", "dcp"):
        with pytest.raises(DetError, match="'_extra_state', which is not a tensor; .* --format state_dict"):
            checkpoint.export(format, "other")
        assert not Path("other").exists()


class Wrapper(torch.Tensor):
    """Tensor that consists of another one, like many quantized tensors."""

    __tensor_flatten__ = None


BOTH = ("safetensors", "dcp")
# states of models, the formats that cannot hold them, and words of the error
UNSUITABLE: list[tuple[list[Any], tuple[str, ...], str]] = [
    ([{"__metadata__": torch.ones(2)}], ("safetensors",), "safetensors cannot hold the tensor '__metadata__'"),
    ([{"w": torch.ones(2, dtype=torch.complex128)}], ("safetensors",), "safetensors cannot hold torch.complex128"),
    ([{"\ud800": torch.ones(2)}], ("safetensors",), "safetensors cannot hold 'utf-8' codec"),
    ([{"w": torch.ones(2).as_subclass(Wrapper)}], ("safetensors",), "safetensors cannot hold the tensor 'w'"),
    ([{"w": torch.eye(2).to_sparse()}], BOTH, "has 'w', which is a sparse tensor; .* --format state_dict"),
    ([{"w": torch.ones(2, device="meta")}], BOTH, "has 'w', which has no values, because it is on the device meta"),
    ([{0: torch.ones(2)}], BOTH, "has 0, which is a name that is not text"),
    ([], (*BOTH, "state_dict"), "the checkpoint has no model"),
]


@pytest.mark.parametrize(("models", "formats", "words"), UNSUITABLE, ids=str)
def test_states_that_a_format_cannot_hold_are_refused(
    models: Any, formats: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_exports, "read_checkpoint", lambda _: {"models_state_dict": models})
    for format in formats:
        with pytest.raises(InvalidTrial, match=words):
            getattr(_exports, f"write_{format}")(tmp_path, tmp_path)


def test_what_cannot_be_exported_says_what_to_type(
    export: Callable[..., Any], store: TrackingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(TwoModels, "state_dict")
    checkpoint: Checkpoint = Determined().get_trial(1).list_checkpoints()[0]
    download = f"det checkpoint download {checkpoint.uuid}"
    with pytest.raises(DetError, match="out exists and is not an empty directory; remove it, or name another"):
        checkpoint.export("dcp", "out")
    with pytest.raises(DetError, match=f"'pytorch' has no format 'onnx': expected safetensors, .*: {download}"):
        checkpoint.export("onnx")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(StorageError, match="safetensors needs a package") as error:
        checkpoint.export("safetensors")
    assert package_command("install", "safetensors") in str(error.value)
    store.edit_checkpoint_metadata(checkpoint.uuid, remove=["trial_framework", "framework", "format"])
    with pytest.raises(DetError, match=f"no installed framework loads checkpoint .*: {download}"):
        checkpoint.export("dcp")
