"""Checkpoints of models and optimizers that slots hold in parts, for adapters with ``TorchBackend.sharded = True``.

All sharded adapters write one layout, so each can continue from a checkpoint of any other, and of any number of slots:

- The directory `SHARD_DIRECTORY` of a checkpoint has the files of ``torch.distributed.checkpoint``, with tensors only.
  ``models/0.layer.weight`` is a tensor of the first model, under its name in the bare model's ``state_dict``.
  ``gradients/0.layer.weight`` is its gradient. ``optimizers/1/0.layer.weight/exp_avg`` is a tensor that the second
  optimizer keeps for it.
- The same directory has one file with all other values. These are a dict: ``models`` and ``optimizers`` are the states
  without their tensors, with names such as ``0.layer.weight`` in place of numbers of parameters. An adapter may add
  keys of its own, which other adapters ignore.
- A checkpoint without this directory was written by an adapter that is not sharded. Its whole state is the argument
  ``state`` of ``TorchBackend.restore``.

``TorchBackend.save`` calls `write_shards`, or `write_shard_tensors` if the optimizers are not those of torch.
``TorchBackend.restore`` reads the directory with `read_sharded_state` and restores what it returns, for example with
`restore_models_and_optimizers`. Models have the names of their weights only within `uncompiled_models`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_torch._checkpoints import _shards
from det_torch._checkpoints._file_names import SHARD_DIRECTORY, STATE_FILE
from det_torch._checkpoints._old_layouts import check_count
from det_torch._checkpoints._packing import unpack_state
from det_torch._checkpoints._shards import TensorFactory, write_shard_tensors, write_shards
from det_torch._checkpoints._training_state import restore_models_and_optimizers
from det_torch._checkpoints._unpickling import load_torch_file
from det_torch._compiled import uncompiled_models

__all__ = [
    "SHARD_DIRECTORY",
    "TensorFactory",
    "check_count",
    "load_torch_file",
    "read_shard_values",
    "read_sharded_state",
    "restore_models_and_optimizers",
    "uncompiled_models",
    "write_shard_tensors",
    "write_shards",
]


def read_sharded_state(path: Path, *, empty: TensorFactory = _shards.make_empty) -> dict[str, Any]:
    """Read the models, optimizers and gradients of all slots, without communication between processes.

    Args:
        path: the checkpoint's directory, which has a `SHARD_DIRECTORY`.
        empty: function that makes the tensor to read into. A ``DTensor`` receives this slot's part only. The default
            makes whole tensors on the CPU.

    Returns:
        ``models_state_dict``, ``optimizers_state_dict`` and ``gradients`` in the layout of checkpoints without shards.

    Raises:
        CheckpointCorrupt: a file is damaged or missing.
        UntrustedCheckpoint: reading the files could run code.
    """
    state: dict[str, Any] = unpack_state(_shards.read_shards(path, empty=empty))
    return state


def read_shard_values(path: Path, key: str) -> Any:
    """Return what `write_shard_tensors` was given under one key of ``values``, or None if there is no such value.

    Args:
        path: the checkpoint's directory.
        key: the key.

    Raises:
        CheckpointCorrupt: the file is damaged.
        UntrustedCheckpoint: reading the file could run code.
    """
    file = path / SHARD_DIRECTORY / STATE_FILE
    return unpack_state(load_torch_file(file, trust=False).get(key)) if file.is_file() else None
