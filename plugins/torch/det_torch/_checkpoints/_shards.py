"""Models and optimizers that slots write in parts, by ``torch.distributed.checkpoint`` (DCP).

`det_torch.sharding` describes the layout. Its file of other values is `STATE_FILE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.state_dict_saver import save
from torch.serialization import _get_layout

from det_core.errors import CheckpointCorrupt
from det_torch._checkpoints import _training_state
from det_torch._checkpoints._file_names import SHARD_DIRECTORY, STATE_FILE
from det_torch._checkpoints._packing import pack_state
from det_torch._checkpoints._unpickling import DAMAGE_ERRORS, load_plain_pickle, load_torch_file

TensorFactory: TypeAlias = Callable[[str, torch.Size, torch.dtype], torch.Tensor]
"""Function that returns the tensor to read into.

Its arguments are the name (number of the model and name in the model), the full shape and the dtype.
"""

_LISTING = ".metadata"
_TYPES = (
    *(dcp.Metadata, dcp.StorageMeta, dcp.MetadataIndex, dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata),
    *(dcp.TensorProperties, dcp._MEM_FORMAT_ENCODING, _StorageInfo, torch.Size, _get_layout),
)
_LISTED = {
    **{f"{kind.__module__}.{kind.__qualname__}": kind for kind in _TYPES},
    **{str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)},
}
"""Types and functions that the pickle with DCP's listing of the tensors may name."""


class _Writer(FileSystemWriter):
    def storage_meta(self) -> dcp.StorageMeta:
        return dcp.StorageMeta(save_id=self.save_id)  # without the directory, because the checkpoint will be moved


def write_shards(path: Path, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Write this slot's part into the directory of a checkpoint. All slots of the process group call it together.

    Args:
        path: the checkpoint's directory; each slot may have its own.
        models: models whose parameters the optimizers train, not compiled.
        optimizers: optimizers of the parameters of ``models``.

    Raises:
        InvalidTrial: the state of an optimizer or a model has values besides tensors that could not be loaded safely.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[torch.Tensor, str] = {}
    states = []
    for number, model in enumerate(models):
        states.append(_without_tensors(model.state_dict(), f"models/{number}.", tensors))
        for name, parameter in model.named_parameters():
            names[parameter] = f"{number}.{name}"
            if parameter.grad is not None:
                tensors[f"gradients/{number}.{name}"] = parameter.grad
    groups = [_named(optimizer, names, f"optimizers/{number}/", tensors) for number, optimizer in enumerate(optimizers)]
    write_shard_tensors(path, tensors, {"models": states, "optimizers": groups})


def write_shard_tensors(path: Path, tensors: dict[str, torch.Tensor], values: Mapping[str, Any]) -> None:
    """Write tensors and values as `write_shards` does, for optimizers that do not derive from torch's.

    Args:
        path: the checkpoint's directory; each slot may have its own.
        tensors: name -> tensor. Each slot writes its part of a ``DTensor``. One slot writes any other tensor.
        values: ``models`` and ``optimizers``, the rest of their states, with names of parameters in place of numbers.
            Only those of the chief are used. Further keys are for `read_shard_values` of `det_torch.sharding`.

    Raises:
        InvalidTrial: ``values`` has values that could not be loaded safely.
    """
    # No fsync here, because the checkpoint store syncs the files itself.
    save(tensors, storage_writer=_Writer(path / SHARD_DIRECTORY, sync_files=False))
    if dist.get_rank() == 0:
        _training_state.write_training_state(pack_state(values, "checkpoint"), path / SHARD_DIRECTORY)


def make_empty(_: str, size: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Return a whole tensor on the CPU to read into."""
    return torch.empty(size, dtype=dtype)


def read_shards(path: Path, *, trust: bool = False, empty: TensorFactory = make_empty) -> dict[str, Any]:
    """Read the models, optimizers and gradients that all slots wrote, without communication between processes.

    Args:
        path: the checkpoint's directory.
        trust: as for `det_torch._checkpoints._reader.read_checkpoint`.
        empty: function that makes the tensor to read into. A ``DTensor`` receives this slot's part only. The default
            makes whole tensors on the CPU.

    Returns:
        ``models_state_dict``, ``optimizers_state_dict`` and ``gradients`` in the layout of checkpoints without shards,
        packed.

    Raises:
        CheckpointCorrupt: a file is damaged or missing.
        UntrustedCheckpoint: reading the files could run code, and ``trust`` is false.
    """
    directory = path / SHARD_DIRECTORY
    try:
        values = load_torch_file(directory / STATE_FILE, trust=trust)
        listing = load_plain_pickle(directory / _LISTING, trust=trust, known=_LISTED)
        _check(listing)
        entries = listing.state_dict_metadata.items()
        tensors = {key: empty(_name(key), entry.size, entry.properties.dtype) for key, entry in entries}
        _fill(tensors, listing, directory)
        return _assembled(tensors, values)
    except (*DAMAGE_ERRORS, AttributeError, FileNotFoundError) as error:
        raise CheckpointCorrupt(f"{directory} is damaged, or files of some slots are missing: {error}") from error


def _without_tensors(
    state: MutableMapping[str, Any], prefix: str, tensors: dict[str, torch.Tensor]
) -> MutableMapping[str, Any]:
    """Return a copy of the state without its tensors, and add these to ``tensors`` under the prefix."""
    rest = copy(state)
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            tensors[prefix + name] = rest.pop(name)
    return rest


def _named(
    optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str], prefix: str, tensors: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Return an optimizer's state without tensors, with names of parameters in place of their numbers."""
    saved = optimizer.state_dict()
    order = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    return {
        "param_groups": [{**group, "params": [order[i] for i in group["params"]]} for group in saved["param_groups"]],
        "state": {
            order[number]: _without_tensors(state, f"{prefix}{order[number]}/", tensors)
            for number, state in saved["state"].items()
        },
    }


def _numbered(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of `_named` in the layout of ``Optimizer.state_dict``."""
    names = [name for group in saved["param_groups"] for name in group["params"]]
    numbers = {name: number for number, name in enumerate(names)}
    return {
        "state": {numbers[name]: state for name, state in saved["state"].items()},
        "param_groups": [{**g, "params": [numbers[name] for name in g["params"]]} for g in saved["param_groups"]],
    }


def _name(key: str) -> str:
    kind, _, rest = key.partition("/")
    return rest.split("/", 1)[1].rpartition("/")[0] if kind == "optimizers" else rest


def _assembled(tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> dict[str, Any]:
    models, optimizers = values["models"], values["optimizers"]
    gradients: list[dict[str, Any]] = [{} for _ in models]
    by_model = {"models": models, "gradients": gradients}
    for key, tensor in tensors.items():
        kind, _, rest = key.partition("/")
        if kind in by_model:
            number, _, name = rest.partition(".")
            by_model[kind][int(number)][name] = tensor
        else:
            optimizers[int(rest.partition("/")[0])]["state"][_name(key)][key.rpartition("/")[2]] = tensor
    return {
        "models_state_dict": models,
        "optimizers_state_dict": [_numbered(saved) for saved in optimizers],
        "gradients": gradients,
    }


def _check(listing: Any) -> None:
    """Check DCP's listing before DCP's reader uses it.

    The reader would load entries that are not tensors as pickles, from any path.

    Raises:
        ValueError: the listing has entries that `write_shards` does not produce.
    """
    for key, entry in listing.state_dict_metadata.items():
        if not isinstance(entry, dcp.TensorStorageMetadata):
            raise ValueError(f"{key} is listed as a {type(entry).__name__}; expected tensors only")
        if sum(math.prod(chunk.sizes) for chunk in entry.chunks) != math.prod(entry.size):
            raise ValueError(f"the parts of {key} do not add up to a tensor of shape {tuple(entry.size)}")
    for place in listing.storage_data.values():
        if Path(place.relative_path).name != place.relative_path:
            raise ValueError(f"{place.relative_path!r} is not the name of a file in the checkpoint")


def _fill(tensors: dict[str, torch.Tensor], listing: dcp.Metadata, directory: Path) -> None:
    # Like torch.distributed.checkpoint.load, which would also read the listing unsafely and communicate.
    planner, reader = DefaultLoadPlanner(), FileSystemReader(directory)
    planner.set_up_planner(tensors, listing, is_coordinator=True)
    reader.set_up_storage_reader(listing, is_coordinator=True)
    plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
    reader.read_data(plan, planner).wait()
