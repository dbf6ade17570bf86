"""A trial with the weights of a checkpoint, to predict with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from det_core.errors import CheckpointNotFound
from det_core.storage import read_object
from det_core.trial import Progress, origin
from det_torch import _checkpoint, _reading
from det_torch._context import PyTorchTrialContext
from det_torch._random import forked
from det_torch._styles import takes_model
from det_torch._trial import PyTorchTrial


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
            imports here under the name that it had in training. Directories above the checkpoint are not searched.
        trust: whether to run code in the checkpoint (its ``code/``, and pickled objects of old checkpoints), and to
            import the class from any directory.
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


def load_checkpoint(
    path: str | os.PathLike[str],
    tags: Sequence[str] | None = None,
    trial_class: type[PyTorchTrial] | None = None,
    *,
    trust: bool = False,
    **torch_load_kwargs: Any,
) -> PyTorchTrial | torch.nn.Module:
    """What ``Checkpoint.load`` of the SDK returns: the model of a trial with ``build_model``, else the trial.

    Args:
        tags: not used; they are for TensorFlow.
        torch_load_kwargs: as for `load_trial_from_checkpoint_path`. Raises as that does.
    """
    trial = load_trial_from_checkpoint_path(path, trial_class, None, torch_load_kwargs, trust=trust)
    return trial.context.models[0] if takes_model(trial, "train_batch") else trial


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
    description = origin.read(path) or _metadata(path)
    trial_class = trial_class or origin.find_class(
        path, description, PyTorchTrial, call="load(path, MyTrial)", shared={"det_torch", "torch"}, trust=trust
    )
    state = _reading.read(path, trust=trust)
    progress = Progress.read(path)
    seed = progress.trial_seed if progress and progress.trial_seed is not None else 0
    context = PyTorchTrialContext._from_record(
        description.get("experiment_config"), description.get("hparams"), reproducibility={"experiment_seed": seed}
    )
    context.device = device
    with forked(seed):
        trial = trial_class(context, **trial_kwargs)
        if trial_class.build_model is not PyTorchTrial.build_model and not context.models:
            context.wrap_model(trial.build_model())
    _checkpoint.restore_models(context, state)
    for model in context.models:
        model.eval()
    return trial


def _metadata(path: Path) -> dict[str, Any]:
    """What releases without ``load_data.json`` wrote when a checkpoint was downloaded; it may lack anything."""
    file = path / "metadata.json"
    return read_object(file) if file.exists() else {}
