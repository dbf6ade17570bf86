"""Loading of models from checkpoints, outside of trials."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.trial import trial_description
from det_keras import _checkpoint, _old_checkpoints
from det_keras._callback_states import has_array
from det_keras._context import TFKerasTrialContext
from det_keras._trial import TFKerasTrial

_log = logging.getLogger("det.keras")


def load_model_from_checkpoint_path(
    path: str | os.PathLike[str],
    tags: Sequence[str] | None = None,
    trial_class: type[TFKerasTrial] | None = None,
    *,
    trial_kwargs: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> tf.keras.Model:
    """Build the model of a trial with ``build_model``, and load the weights of a checkpoint into it.

    A model that has no weights before its first call loads them then.

    Args:
        path: the directory of a checkpoint, for example from ``det checkpoint download``.
        tags: ignored; existing scripts pass it.
        trial_class: the trial's class. By default, the class comes from the checkpoint's ``code/`` if that exists, else
            it is imported by the name that it had in training. Directories above the checkpoint are not searched.
        trial_kwargs: arguments of the class in addition to the context.
        trust: whether to run the checkpoint's ``code/``, and to import the class from any directory.

    Returns:
        The model, as ``build_model`` compiled it.

    Raises:
        CheckpointNotFound: there is no checkpoint at ``path``.
        UntrustedCheckpoint: the checkpoint would run code.
        InvalidTrial: the class is not found, takes other arguments, or its model differs from that of the checkpoint.
    """
    directory = Path(path)
    description = trial_description.read_description(directory)
    trial_class = trial_class or trial_description.find_trial_class(
        directory,
        description,
        TFKerasTrial,
        call="load_model_from_checkpoint_path(path, trial_class=MyTrial)",
        shared={"det_keras", "det_tensorflow", "keras", "tensorflow"},
        trust=trust,
    )
    context = TFKerasTrialContext.from_record(description.get("experiment_config"), description.get("hparams"))
    trial = trial_description.make_trial(
        trial_class,
        context,
        trial_kwargs or {},
        call="load_model_from_checkpoint_path(path, trial_class=MyTrial, trial_kwargs={...})",
    )
    model: tf.keras.Model = trial.build_model()
    load_weights(model, directory)
    if not _old_checkpoints.is_old_checkpoint(directory):
        _name_left_out_callbacks(_checkpoint.read_state(directory)["callbacks"])
    return model


def _name_left_out_callbacks(states: Sequence[tuple[str, Any]]) -> None:
    """Name the callbacks that may have validated with other weights than those of the model, such as an average."""
    if names := [name for name, state in states if has_array(state)]:
        _log.warning(
            "the model has the weights of the training; the states of the callbacks %s hold arrays, which are not "
            "loaded, such as averaged weights that were validated: they are under 'callbacks' in %s of the checkpoint",
            ", ".join(names),
            _checkpoint.STATE,
        )


def load_weights(model: tf.keras.Model, path: Path) -> None:
    """Load only the weights of a checkpoint, saved by det or the original system, into a model.

    Raises:
        InvalidTrial: the model differs from that of the checkpoint.
        CheckpointCorrupt: a file is damaged.
    """
    if _old_checkpoints.is_old_checkpoint(path):
        _old_checkpoints.load_old_weights(path, model)
    elif model.built:
        _checkpoint.restore_model_weights(model, _checkpoint.read_state(path), path)
    else:
        _checkpoint.restore_when_built(model, path)
