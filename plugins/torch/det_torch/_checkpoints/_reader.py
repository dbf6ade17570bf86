"""Reader of checkpoints that works without a trial, for checkpoints of det and of all releases of the original."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_torch._checkpoints._file_names import SHARD_DIRECTORY, STATE_FILE
from det_torch._checkpoints._old_layouts import convert_old_layout
from det_torch._checkpoints._packing import unpack_state
from det_torch._checkpoints._unpickling import load_plain_pickle, load_torch_file

# The newest place comes first. model.pth is not listed because it is a whole model as code.
_STATE_FILES = (STATE_FILE, "determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt")
_BATCH_COUNT_KEYS = ("steps_completed", "batches_trained", "latest_batch")


def read_checkpoint(path: Path, *, trust: bool = False, shards: bool = True) -> dict[str, Any]:
    """Return the state that a checkpoint holds, on the CPU, in det's layout and in its original types.

    Args:
        path: the checkpoint's directory.
        trust: whether files that contain more than values may run the code that they name.
        shards: whether to assemble models, optimizers and gradients that slots wrote in parts. If false, the state
            does not include them.

    Returns:
        ``models_state_dict``, ``optimizers_state_dict``, ``lr_schedulers_state_dict``: lists of states in the order of
        wrapping; ``callbacks``: name -> state; ``rng_state`` and ``scaler_state_dict``: None if not saved; and all
        other keys of the file, unchanged.

    Raises:
        CheckpointNotFound: there is no state of a `PyTorchTrial` under the path.
        CheckpointCorrupt: a file is damaged.
        UntrustedCheckpoint: reading the checkpoint could run code, and ``trust`` is false.
        StorageError: reading the checkpoint requires code or a package that cannot be imported.
    """
    places = [path / place for place in _STATE_FILES if (path / place).is_file()]
    if not places:
        raise CheckpointNotFound(
            f"{path} is not a checkpoint of a PyTorchTrial: it has none of {', '.join(_STATE_FILES)}"
        )
    state = convert_old_layout(load_torch_file(places[0], trust=trust))
    if (path / SHARD_DIRECTORY).is_dir():
        if shards:
            from det_torch._checkpoints import (
                _shards,  # imported here because few checkpoints need it and its dependencies
            )

            state |= _shards.read_shards(path, trust=trust)
    elif "models_state_dict" not in state:
        state["models_state_dict"] = _safetensors(path)
    unpacked: dict[str, Any] = unpack_state(state)
    return unpacked


def read_batches_trained(path: Path, *, trust: bool = False) -> int | None:
    """Return the number of batches that the checkpoint's trial had trained, or None if no file records it.

    Args:
        path: the checkpoint's directory.
        trust: as for `read_checkpoint`.

    Raises:
        CheckpointCorrupt: a file is damaged.
        UntrustedCheckpoint: reading the checkpoint could run code, and ``trust`` is false.
    """
    for name, load in _PROGRESS_FILES.items():
        if (path / name).is_file():
            counts = list(_counts(load(path / name, trust)))
            if counts:
                return counts[0]
    return None


def _counts(said: Any) -> Iterator[int]:
    if isinstance(said, Mapping):
        yield from (said[name] for name in _BATCH_COUNT_KEYS if type(said.get(name)) is int)
        yield from _counts(said.get("metadata"))  # a download stores the master's metadata under this key


def _json(path: Path, _trust: bool) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointCorrupt(f"{path} is not JSON: {error}") from error


def _pickle(path: Path, trust: bool) -> Any:
    return load_plain_pickle(path, trust=trust)


_PROGRESS_FILES: dict[str, Callable[[Path, bool], Any]] = {
    "metadata.json": _json,
    "trial_state.pkl": _pickle,
    "workload_sequencer.pkl": _pickle,
}


def _safetensors(path: Path) -> list[dict[str, Any]]:
    files = list(takewhile(Path.is_file, (path / f"model_{number}.safetensors" for number in count())))
    if not files:
        raise CheckpointCorrupt(f"{path} holds no models: it has neither models_state_dict nor model_0.safetensors")
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        from det_core.package_commands import package_command

        command = package_command("install", "safetensors")
        raise StorageError(f"{files[0]} needs a package that is not installed: {command}") from error
    try:
        return [load_file(file) for file in files]
    except SafetensorError as error:
        raise CheckpointCorrupt(f"{path} has a damaged model_N.safetensors: {error}") from error
