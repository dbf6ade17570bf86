"""Old forms of `det_core.experimental.create`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from det_core import experimental
from det_core.trial import Trial

__all__ = ["Mode", "create", "train_one_batch"]


class Mode(Enum):
    """Ways to run an experiment, by their names in releases 0.12.0 to 0.12.4."""

    SUBMIT = "submit"
    """Train in the background."""
    TEST = "test"
    """Train one batch in this process."""
    CLUSTER = "cluster"
    """The same as SUBMIT."""
    LOCAL = "local"
    """The same as TEST."""


def create(
    trial_def: type[Trial],
    config: dict[str, Any] | None = None,
    local: bool = False,
    test: bool = False,
    context_dir: str = "",
    command: list[str] | None = None,
    master_url: str | None = None,
    *,
    mode: Mode | str | None = None,
) -> Any:
    """Train a trial class as `det_core.experimental.create` does.

    Args:
        trial_def: trial class.
        config: experiment config.
        local: whether to train on this host and wait for the end.
        test: whether to train only one batch.
        context_dir: directory with the code.
        command: path of the script that defines the class, relative to ``context_dir``, and its arguments.
        master_url: URL of the tracking store.
        mode: value that replaces ``local`` and ``test``.

    Returns:
        The experiment, or None after a local test.
    """
    if mode is not None:
        local = test = Mode(mode) in (Mode.TEST, Mode.LOCAL)
    return experimental.create(trial_def, config, local, test, context_dir, command, master_url)


def train_one_batch(
    context_path: str = "",
    trial_class: type[Trial] | None = None,
    config: dict[str, Any] | None = None,
) -> None:
    """Train one batch in this process, validate, and save a checkpoint, which is removed afterwards.

    Args:
        context_path: directory with the code. By default the working directory.
        trial_class: trial class.
        config: experiment config.

    Raises:
        InvalidTrial: ``trial_class`` is not a trial class.
    """
    experimental.create(trial_class, config, local=True, test=True, context_dir=str(context_path))  # type: ignore[arg-type]
