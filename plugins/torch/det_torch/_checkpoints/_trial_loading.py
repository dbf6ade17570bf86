"""Loading of trials with the weights of a checkpoint, for predictions."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from det_core.trial import Progress, trial_description
from det_torch._checkpoints import _reader, _training_state
from det_torch._context import PyTorchTrialContext
from det_torch._random import forked
from det_torch._trial import PyTorchTrial
from det_torch._trial_steps import takes_model

_log = logging.getLogger("det.torch")


def load(
    path: str | os.PathLike[str],
    trial_class: type[PyTorchTrial] | None = None,
    *,
    trust: bool = False,
    **trial_kwargs: Any,
) -> PyTorchTrial:
    """Make a trial and load the weights of a checkpoint into its models.

    The models are on the CPU and in evaluation mode. They are in ``trial.context.models``, in the order in which they
    were wrapped. The trial's hyperparameters and ``data`` are those of the training. The global random generators do
    not change.

    Args:
        path: directory of a checkpoint, as ``det checkpoint download`` creates it, of any release from 0.12 on.
        trial_class: class of the trial. None means the class in the checkpoint's ``code/`` if that exists, and
            otherwise the class that can be imported under its name in training. Directories above the checkpoint are
            not searched.
        trust: whether to run code in the checkpoint (its ``code/``, and pickled objects of old checkpoints), and to
            import the class from any directory.
        trial_kwargs: arguments of the class in addition to the context.

    Returns:
        The trial.

    Raises:
        CheckpointNotFound: there is no checkpoint at ``path``.
        UntrustedCheckpoint: loading requires running code of the checkpoint, and ``trust`` is False.
        InvalidTrial: the class is not found, or its models differ from those in the checkpoint.
    """
    return _load(
        Path(path),
        trial_class,
        trial_kwargs,
        torch.device("cpu"),
        trust=trust,
        call="load(path, MyTrial)",
        arguments="name=value",
    )


def load_trial_from_checkpoint_path(
    path: str | os.PathLike[str],
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
) -> PyTorchTrial | torch.nn.Module:
    """Load a trial as `load` does, with the arguments and the result that existing scripts use.

    Args:
        path: as for `load`.
        trial_class: as for `load`.
        trial_kwargs: as for `load`.
        torch_load_kwargs: dict with the optional items ``map_location``, a device for the models instead of the CPU,
            and ``weights_only``, for which False is the same as ``trust=True``.
        trust: as for `load`.

    Returns:
        The model if the trial has ``build_model``, and otherwise the trial.

    Raises:
        ValueError: ``torch_load_kwargs`` has other items, or ``map_location`` is not a device.
        CheckpointNotFound: as for `load`.
        UntrustedCheckpoint: as for `load`.
        InvalidTrial: as for `load`.
    """
    options = dict(torch_load_kwargs or {})
    device = options.pop("map_location", None) or "cpu"
    trust = trust or options.pop("weights_only", True) is False
    if options or not isinstance(device, (str, torch.device)):
        raise ValueError(
            f"torch_load_kwargs is {torch_load_kwargs!r}; expected map_location, a device such as 'cpu' or 'cuda:0', "
            "and weights_only, True or False"
        )
    trial = _load(
        Path(path),
        trial_class,
        trial_kwargs or {},
        torch.device(device),
        trust=trust,
        call="load_trial_from_checkpoint_path(path, MyTrial)",
    )
    return _trial_or_model(trial)


def load_checkpoint(
    path: str | os.PathLike[str],
    tags: Sequence[str] | None = None,
    trial_class: type[PyTorchTrial] | None = None,
    *,
    trial_kwargs: Mapping[str, Any] | None = None,
    trust: bool = False,
    map_location: str | torch.device | None = None,
    weights_only: bool = True,
) -> PyTorchTrial | torch.nn.Module:
    """Load a checkpoint for ``Checkpoint.load`` of the SDK.

    Args:
        path: as for `load`.
        tags: ignored. Only TensorFlow uses it.
        trial_class: as for `load`.
        trial_kwargs: arguments of the class in addition to the context.
        trust: as for `load`.
        map_location: device for the models. None stands for the CPU.
        weights_only: False is the same as ``trust=True``.

    Returns:
        The model if the trial has ``build_model``, and otherwise the trial.

    Raises:
        ValueError: ``map_location`` is not a device.
        CheckpointNotFound: as for `load`.
        UntrustedCheckpoint: as for `load`.
        InvalidTrial: as for `load`.
    """
    if not isinstance(map_location, (str, torch.device, type(None))):
        raise ValueError(f"map_location is {map_location!r}; expected a device such as 'cpu' or 'cuda:0'")
    trial = _load(
        Path(path),
        trial_class,
        trial_kwargs or {},
        torch.device(map_location or "cpu"),
        trust=trust or not weights_only,
        call="load(path, trial_class=MyTrial)",
    )
    return _trial_or_model(trial)


def _trial_or_model(trial: PyTorchTrial) -> PyTorchTrial | torch.nn.Module:
    return trial.context.models[0] if takes_model(trial, "train_batch") else trial


def _load(
    path: Path,
    trial_class: type[PyTorchTrial] | None,
    trial_kwargs: Mapping[str, Any],
    device: torch.device,
    *,
    trust: bool,
    call: str,
    arguments: str = "trial_kwargs={...}",
) -> PyTorchTrial:
    description = trial_description.read_description(path)
    trial_class = trial_class or trial_description.find_trial_class(
        path, description, PyTorchTrial, call=call, shared={"det_torch", "torch"}, trust=trust
    )
    state = _reader.read_checkpoint(path, trust=trust)
    progress = Progress.read(path)
    seed = progress.trial_seed if progress and progress.trial_seed is not None else 0
    context = PyTorchTrialContext.from_record(
        description.get("experiment_config"), description.get("hparams"), reproducibility={"experiment_seed": seed}
    )
    context.device = device
    with forked(seed):
        how = f"{call.removesuffix(')')}, {arguments})"
        trial: PyTorchTrial = trial_description.make_trial(trial_class, context, trial_kwargs, call=how)
        if trial_class.build_model is not PyTorchTrial.build_model and not context.models:
            context.wrap_model(trial.build_model())
    _training_state.restore_models(context, state)
    _name_left_out_callbacks(state.get("callbacks", {}))
    for model in context.models:
        model.eval()
    return trial


def _name_left_out_callbacks(states: Mapping[str, Any]) -> None:
    """Name the callbacks that may have validated with other weights than those of the models, such as an average."""
    if names := [name for name, state in states.items() if _has_tensor(state)]:
        _log.warning(
            "the models have the weights of the training; the states of the callbacks %s hold tensors, which are not "
            "loaded, such as averaged weights that were validated: they are in torch.load('state_dict.pth', "
            "weights_only=True)['callbacks'] of the checkpoint",
            ", ".join(map(repr, names)),
        )


def _has_tensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = [*value.values()]
    return isinstance(value, torch.Tensor) or (isinstance(value, (list, tuple)) and any(map(_has_tensor, value)))
