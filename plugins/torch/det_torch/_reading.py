"""Reading a checkpoint, of det or of any release of the original, without a trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_torch._layouts import to_ours
from det_torch._unpickling import load_plain, load_tensors

SHARDS = "shards"
"""The directory of a checkpoint that has its models and optimizers, if slots wrote them in parts (`_shards`)."""

# The newest place first; model.pth, a whole model as code, is none of them.
_PLACES = ("state_dict.pth", "determined/state_dict.pth", "pedl/state_dict.pth", "checkpoint.pt")
_COUNTS = ("steps_completed", "batches_trained", "latest_batch")


def read(path: Path, *, trust: bool = False, shards: bool = True) -> dict[str, Any]:
    """The state that a checkpoint holds, on the CPU and in det's layout.

    Args:
        path: the checkpoint's directory.
        trust: run what the files bring along, if they hold more than values.
        shards: put together models, optimizers and gradients that slots wrote in parts; else leave these out.

    Returns:
        ``models_state_dict``, ``optimizers_state_dict``, ``lr_schedulers_state_dict``: one state each, in the order of
        wrapping; ``callbacks``: name -> state; ``rng_state`` and ``scaler_state_dict``: None if not saved; and what
        else the file has, as it is.

    Raises:
        CheckpointNotFound: there is no state of a `PyTorchTrial` under the path.
        CheckpointCorrupt: a file is damaged.
        UntrustedCheckpoint: reading it could run code, and ``trust`` is false.
        StorageError: reading it takes code or a package that cannot be imported.
    """
    places = [path / place for place in _PLACES if (path / place).is_file()]
    if not places:
        raise CheckpointNotFound(f"{path} is no checkpoint of a PyTorchTrial: it has none of {', '.join(_PLACES)}")
    state = to_ours(load_tensors(places[0], trust=trust))
    if (path / SHARDS).is_dir():
        if shards:
            from det_torch import _shards  # with what it imports, which few checkpoints need

            state |= _shards.read(path, trust=trust)
    elif "models_state_dict" not in state:
        state["models_state_dict"] = _safetensors(path)
    return state


def batches_trained(path: Path, *, trust: bool = False) -> int | None:
    """How many batches the checkpoint's trial had trained on; None where no file says it.

    Raises:
        CheckpointCorrupt, UntrustedCheckpoint: as for `read`.
    """
    for name, load in _WITNESSES.items():
        if (path / name).is_file():
            counts = list(_counts(load(path / name, trust)))
            if counts:
                return counts[0]
    return None


def _counts(said: Any) -> Iterator[int]:
    if isinstance(said, Mapping):
        yield from (said[name] for name in _COUNTS if type(said.get(name)) is int)
        yield from _counts(said.get("metadata"))  # where a download noted what the master knew


def _json(path: Path, _trust: bool) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointCorrupt(f"{path} is not JSON: {error}") from error


def _pickle(path: Path, trust: bool) -> Any:
    return load_plain(path, trust=trust)


_WITNESSES: dict[str, Callable[[Path, bool], Any]] = {
    "metadata.json": _json,
    "trial_state.pkl": _pickle,
    "workload_sequencer.pkl": _pickle,
}


def _safetensors(path: Path) -> list[dict[str, Any]]:
    files = list(takewhile(Path.is_file, (path / f"model_{number}.safetensors" for number in count())))
    if not files:
        raise CheckpointCorrupt(f"{path} holds no models: neither models_state_dict nor model_0.safetensors")
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise StorageError(f"{files[0]} needs a package that is not installed: pip install safetensors") from error
    try:
        return [load_file(file) for file in files]
    except SafetensorError as error:
        raise CheckpointCorrupt(f"{path} has a damaged model_N.safetensors: {error}") from error
