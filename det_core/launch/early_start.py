"""Start of the process from which workers are forked, before the runner has imported its own modules."""

from __future__ import annotations

import os
from pathlib import Path

from det_core.config import ExperimentConfig, is_command
from det_core.launch.backends import choose_backend
from det_core.launch.launchers import open_launcher, variables_of
from det_core.launch.local import LocalLauncher
from det_core.plugins import plugin_registry


def prepare_first_launch(config: ExperimentConfig, code: Path) -> None:
    """Let modules of the first worker be imported from now on, if it will be a fork on this machine.

    Args:
        config: the config of the experiment, with its secrets or with references to them.
        code: directory with the user's code.

    Raises:
        InvalidExperimentException, PluginError: as `det_core.launch.backends.choose_backend`.
        SecretMissing: the config refers to a secret that is not on this host.
    """
    entrypoint, is_local = config.entrypoint, config.launcher.type == "local"
    adds_variables = plugin_registry().implementations("det_prepare_launch")  # which are not known before the launch
    if not entrypoint or is_command(entrypoint) or not is_local or adds_variables:
        return
    launcher = open_launcher(config)
    if isinstance(launcher, LocalLauncher):
        backend = choose_backend(config, None, os.environ)
        variables = variables_of(config, launcher.device())
        launcher.prepare(str(entrypoint), code, variables, backend.name if backend else None)
