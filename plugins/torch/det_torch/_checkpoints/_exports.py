"""Weights of checkpoints in formats of other libraries. `FrameworkSpec.exports` names these functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint

from det_core.errors import InvalidTrial, StorageError
from det_core.package_commands import package_command
from det_torch._checkpoints._reader import read_checkpoint
from det_torch._checkpoints._tensor_files import check_tensors, save_safetensors

_REMEDY = "this format has only dense tensors, so type: det checkpoint export UUID --format state_dict"


def write_safetensors(path: Path, target: Path) -> None:
    """Write each model to a file ``model.safetensors``. Weights that layers share are written for each of them.

    Raises:
        InvalidTrial: there is no model, or a model has values that the format cannot hold.
        StorageError: safetensors is not installed.
    """
    for name, weights in _models(path):
        tensors = check_tensors(weights, _REMEDY)
        apart = {key: value.clone(memory_format=torch.contiguous_format) for key, value in tensors.items()}
        try:
            save_safetensors(apart, target / f"{name}.safetensors", _REMEDY)
        except ImportError as error:
            command = package_command("install", "safetensors")
            raise StorageError(f"the format safetensors needs a package that is not installed: {command}") from error


def write_state_dict(path: Path, target: Path) -> None:
    """Write each model to a file ``model.pth``, which ``torch.load(weights_only=True)`` reads.

    Raises:
        InvalidTrial: there is no model, or a model has values that this function would refuse.
    """
    for name, weights in _models(path):
        file = target / f"{name}.pth"
        torch.save(weights, file)
        if refused := get_unsafe_globals_in_checkpoint(str(file)):
            raise InvalidTrial(f"the model's state_dict() holds {', '.join(refused)}, which does not load safely")


def write_dcp(path: Path, target: Path) -> None:
    """Write each model to a directory ``model``, which ``torch.distributed.checkpoint.load`` reads on any world size.

    Raises:
        InvalidTrial: there is no model, or a model has values besides dense tensors.
    """
    from torch.distributed.checkpoint.state_dict_saver import save  # takes long to import

    for name, weights in _models(path):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # as `no_dist` asks for
            save(check_tensors(weights, _REMEDY), checkpoint_id=target / name, no_dist=True)


def _models(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    models = read_checkpoint(path)["models_state_dict"]
    if not models:
        raise InvalidTrial("the checkpoint has no model, because its trial wrapped none")
    names = ["model"] if len(models) == 1 else [f"model_{number}" for number in range(len(models))]
    return zip(names, models, strict=True)
