"""A model with the weights of a checkpoint, to predict with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.core import Context
from det_core.errors import CheckpointNotFound, InvalidTrial
from det_core.trial import load_trial_class
from det_keras import _checkpoint, _old
from det_keras._context import TFKerasTrialContext
from det_keras._trial import TFKerasTrial

_KEPT = ("name", "description", "labels", "data", "records_per_epoch", "scheduling_unit")
"""Keys of the recorded config that the trial may read again; the others are about the machines it trained on."""

_OLD_NAMES = {"class": "trial_cls_spec", "hparams": "hparams", "config": "experiment_config"}


def describe(trial_class: type[TFKerasTrial], core: Context) -> dict[str, Any]:
    """The class by name, its hyperparameters and the config; secrets stay references, as in the record."""
    return {
        "class": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": core.trial.hparams,
        "config": core.trial.config,
    }


def load_model_from_checkpoint_path(
    path: str | os.PathLike[str],
    tags: Sequence[str] | None = None,
    trial_class: type[TFKerasTrial] | None = None,
) -> tf.keras.Model:
    """The compiled model of a trial, as its ``build_model`` makes it, with the weights of a checkpoint.

    A model that has no weights before its first call gets them then.

    Args:
        path: the directory of a checkpoint, as ``det checkpoint download`` makes it.
        tags: not used; existing scripts pass it.
        trial_class: the trial's class. None: the one that imports here under the name that it had in the training.

    Raises:
        CheckpointNotFound: there is no checkpoint at ``path``.
        InvalidTrial: the class is not found, or its model is another one than the checkpoint's.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise CheckpointNotFound(f"{path} is no directory; expected that of a checkpoint: det checkpoint download UUID")
    description = _description(directory)
    model = (trial_class or _find_class(directory, description))(_context(description)).build_model()
    load_weights(model, directory)
    return model


def load_weights(model: tf.keras.Model, path: Path) -> None:
    """Put the weights of a checkpoint of ours or of the original's into a model, and nothing else.

    Raises:
        InvalidTrial: the model is another one than the checkpoint's.
    """
    if _old.is_old(path):
        _old.load_weights(path, model)
    elif model.built:
        _checkpoint.restore_weights(model, _checkpoint.read_state(path), path)
    else:
        _checkpoint.restore_when_built(model, path)


def _description(path: Path) -> dict[str, Any]:
    """Of the trial, under the names of `describe`."""
    if not _old.is_old(path):
        return _checkpoint.read_state(path)["trial"] or {}
    file = path / "load_data.json"
    saved = json.loads(file.read_text()) if file.exists() else {}
    return {ours: saved.get(theirs) for ours, theirs in _OLD_NAMES.items()}


def _context(description: Mapping[str, Any]) -> TFKerasTrialContext:
    config = description.get("config") or {}
    return TFKerasTrialContext.from_config(
        {
            **{key: config[key] for key in _KEPT if config.get(key) is not None},
            "hyperparameters": {
                name: {"type": "const", "val": value} for name, value in (description.get("hparams") or {}).items()
            },
        }
    )


def _find_class(path: Path, description: Mapping[str, Any]) -> type[TFKerasTrial]:
    name = description.get("class") or ""
    try:
        found = load_trial_class(name)
    except InvalidTrial as error:
        raise InvalidTrial(
            f"{path} is of the trial {name!r}, which cannot be imported here: {error}. Pass the class: "
            "load_model_from_checkpoint_path(path, trial_class=MyTrial)"
        ) from error
    if not issubclass(found, TFKerasTrial):
        raise InvalidTrial(f"{path} is of the trial {name!r}, a {found.__base__}; expected a TFKerasTrial")
    return found
