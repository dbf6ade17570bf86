"""Record a new experiment."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

from pydantic import SecretBytes, SecretStr

from det_core.config import ExperimentConfig, is_command, parse_config
from det_core.core import default_storage
from det_core.errors import InvalidExperimentException
from det_core.interfaces.tracking import Experiment, TrackingStore
from det_core.runner._context_dir import pack


def submit(
    store: TrackingStore, config: ExperimentConfig, context_dir: Path, *, original_config: str = ""
) -> Experiment:
    """Record the experiment with its code, QUEUED, ready for a runner.

    Raises:
        DetError: the context directory is missing or too large.
        InvalidExperimentException: the config asks for what cannot run here.
    """
    if config.entrypoint is None:
        raise InvalidExperimentException(
            "the config has no entrypoint; for example: entrypoint: model_def:MyTrial, or entrypoint: python3 train.py"
        )
    if config.resources.slots_per_trial > 1 and not is_command(config.entrypoint):
        raise InvalidExperimentException(
            f"resources.slots_per_trial is {config.resources.slots_per_trial}, and this release trains the trial class "
            f"{config.entrypoint!r} on one process: use 1, or a command that starts the workers, such as torchrun"
        )
    _refuse_secrets(config.model_dump(), "")
    content = pack(context_dir)
    complete = config.dump()
    if complete.get("checkpoint_storage") is None:
        complete["checkpoint_storage"] = default_storage()
    return store.create_experiment(
        config=parse_config(complete).dump(),
        original_config=original_config,
        model_definition=content,
        owner=getpass.getuser(),
    )


def _refuse_secrets(value: Any, path: str) -> None:
    """The record must not hold secrets, and a masked one could not be used again."""
    if isinstance(value, (SecretStr, SecretBytes)):
        raise InvalidExperimentException(
            f"{path} is a secret, and this release keeps configs in the database; remove it and let the plugin "
            "read it from the environment or a credentials file"
        )
    for key, inner in value.items() if isinstance(value, dict) else ():
        _refuse_secrets(inner, f"{path}.{key}" if path else key)
