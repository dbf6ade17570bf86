"""Loading of states from checkpoints, outside of trials."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_core.trial import TrialContext, trial_description
from det_jax._adapter import make_key
from det_jax._state import ArrayState, read_checkpoint
from det_jax._trial import JaxTrial


def load_state_from_checkpoint_path(
    path: str | os.PathLike[str],
    tags: Sequence[str] | None = None,
    trial_class: type[JaxTrial] | None = None,
    *,
    trial_kwargs: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Any:
    """Make the state of a trial with ``initial_state``, and load the arrays of a checkpoint into it.

    Args:
        path: the directory of a checkpoint, for example from ``det checkpoint download``.
        tags: ignored, as by the loaders of other frameworks.
        trial_class: the trial's class. By default, the class comes from the checkpoint's ``code/`` if that exists, else
            it is imported by the name that it had in training. Directories above the checkpoint are not searched.
        trial_kwargs: arguments of the class in addition to the context.
        trust: whether to run the checkpoint's ``code/``, and to import the class from any directory.

    Returns:
        The state as ``initial_state`` returns it, such as ``(model, optimizer)``.

    Raises:
        CheckpointNotFound: there is no checkpoint at ``path``.
        UntrustedCheckpoint: the checkpoint would run code.
        InvalidTrial: the class is not found, takes other arguments, or its state differs from that of the checkpoint.
    """
    directory = Path(path)
    description = trial_description.read_description(directory)
    call = "load_state_from_checkpoint_path(path, trial_class=MyTrial)"
    trial_class = trial_class or trial_description.find_trial_class(
        directory, description, JaxTrial, call=call, shared={"det_jax", "flax", "jax", "optax"}, trust=trust
    )
    context = TrialContext.from_record(description.get("experiment_config"), description.get("hparams"))
    trial = trial_description.make_trial(
        trial_class, context, trial_kwargs or {}, call=call.replace(")", ", trial_kwargs={...})")
    )
    state = ArrayState(trial.initial_state(make_key(context.get_trial_seed(), "initial state")))
    state.load(read_checkpoint(directory)[0], directory)
    return state.merge(state.tree)
