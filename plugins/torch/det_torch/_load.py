"""A trial with the weights of a checkpoint, to predict with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from det_core.errors import CheckpointNotFound, InvalidTrial, UntrustedCheckpoint
from det_core.trial import Progress, load_trial_class
from det_torch import _checkpoint, _description, _reading
from det_torch._context import PyTorchTrialContext
from det_torch._random import forked
from det_torch._trial import PyTorchTrial

_KEPT = ("name", "description", "labels", "data", "records_per_epoch", "scheduling_unit")
"""Keys of the recorded config that the trial may read again; the others are about the machines it trained on."""
_NEVER_IMPORTED_AGAIN = {"det_core", "det_torch", "torch"}
"""What the trial's class must share with this process."""


def load(
    path: str | os.PathLike[str],
    trial_class: type[PyTorchTrial] | None = None,
    *,
    trust: bool = False,
    **trial_kwargs: Any,
) -> PyTorchTrial:
    """Make a trial and load the weights of a checkpoint into its models, which are on the CPU and in evaluation mode.

    The models are in ``trial.context.models``, in the order in which they were wrapped; the trial's hyperparameters
    and ``data`` are those of the training. The global random generators are left as they were.

    Args:
        path: the directory of a checkpoint, as ``det checkpoint download`` makes it, of any release from 0.12 on.
        trial_class: the trial's class. None: the one in the checkpoint's ``code/`` if it has that, else the one that
            imports here under the name that it had in the training.
        trust: whether to run code that the checkpoint brings along: its ``code/``, and what old ones have pickled.
        trial_kwargs: given to the class besides the context.

    Raises:
        CheckpointNotFound: there is no checkpoint at ``path``.
        UntrustedCheckpoint: the checkpoint would run code.
        InvalidTrial: the class is not found, or its models are others than the checkpoint's.
    """
    return _load(Path(path), trial_class, trial_kwargs, torch.device("cpu"), trust=trust)


def load_trial_from_checkpoint_path(
    path: str | os.PathLike[str],
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
) -> PyTorchTrial:
    """As `load`, under the name and with the arguments that existing scripts use.

    Args:
        torch_load_kwargs: ``map_location``, a device for the models instead of the CPU, and ``weights_only``, where
            False means ``trust``.

    Raises:
        ValueError: ``torch_load_kwargs`` has something else.
    """
    options = dict(torch_load_kwargs or {})
    device = options.pop("map_location", None) or "cpu"
    trust = trust or options.pop("weights_only", True) is False
    if options or not isinstance(device, (str, torch.device)):
        raise ValueError(
            f"torch_load_kwargs is {torch_load_kwargs!r}; expected map_location, a device such as 'cpu' or 'cuda:0', "
            "and weights_only, True or False"
        )
    return _load(Path(path), trial_class, trial_kwargs or {}, torch.device(device), trust=trust)


def _load(
    path: Path,
    trial_class: type[PyTorchTrial] | None,
    trial_kwargs: Mapping[str, Any],
    device: torch.device,
    *,
    trust: bool,
) -> PyTorchTrial:
    if not path.is_dir():
        raise CheckpointNotFound(f"{path} is no directory; expected that of a checkpoint: det checkpoint download UUID")
    description = _description.read(path) or _metadata(path)
    trial_class = trial_class or _find_class(path, description, trust=trust)
    state = _reading.read(path, trust=trust)
    progress = Progress.read(path)
    seed = progress.trial_seed if progress and progress.trial_seed is not None else 0
    context = _context(description, seed)
    context.device = device
    with forked(seed):
        trial = trial_class(context, **trial_kwargs)
        if trial_class.build_model is not PyTorchTrial.build_model and not context.models:
            context.wrap_model(trial.build_model())
    _checkpoint.restore_models(context, state)
    for model in context.models:
        model.eval()
    return trial


def _context(description: Mapping[str, Any], seed: int) -> PyTorchTrialContext:
    config = description.get("experiment_config") or {}
    hparams = description.get("hparams") or {}
    return PyTorchTrialContext.from_config(
        {
            **{key: config[key] for key in _KEPT if config.get(key) is not None},
            "hyperparameters": {name: {"type": "const", "val": value} for name, value in hparams.items()},
            "reproducibility": {"experiment_seed": seed},
        }
    )


def _metadata(path: Path) -> dict[str, Any]:
    """What releases without ``load_data.json`` wrote when a checkpoint was downloaded; it may lack anything."""
    file = path / "metadata.json"
    metadata: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return metadata


def _find_class(path: Path, description: Mapping[str, Any], *, trust: bool) -> type[PyTorchTrial]:
    name = description.get("trial_cls_spec") or (description.get("experiment_config") or {}).get("entrypoint")
    if not isinstance(name, str):
        raise InvalidTrial(f"{path} does not say of which trial class it is; pass it: load(path, MyTrial)")
    code = path / "code"
    if not code.is_dir():
        return _import(name, path)
    if not trust:
        raise UntrustedCheckpoint(
            f"{path} brings the code of its trial {name!r} along; pass the class to use code of yours, "
            "load(path, MyTrial), or trust=True to run the checkpoint's"
        )
    with _importing_from(code):
        return _import(name, path)


def _import(name: str, path: Path) -> type[PyTorchTrial]:
    try:
        trial_class = load_trial_class(name)
    except InvalidTrial as error:
        raise InvalidTrial(
            f"{path} is of the trial {name!r}, which cannot be imported here: {error}. "
            "Pass the class: load(path, MyTrial)"
        ) from error
    if not issubclass(trial_class, PyTorchTrial):
        raise InvalidTrial(f"{path} is of the trial {name!r}, a {trial_class.__base__}; expected a PyTorchTrial")
    return trial_class


@contextmanager
def _importing_from(directory: Path) -> Iterator[None]:
    """Import what is in a directory from there, and leave no trace: others have modules of the same names."""
    names = {entry.stem for entry in directory.iterdir()} - _NEVER_IMPORTED_AGAIN

    def take_out() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}

    before, writes = take_out(), sys.dont_write_bytecode
    sys.path.insert(0, str(directory))
    sys.dont_write_bytecode = True  # a checkpoint is only read
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(directory))
        take_out()
        sys.modules.update(before)
