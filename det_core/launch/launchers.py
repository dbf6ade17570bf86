"""From a config to its launcher."""

from __future__ import annotations

from typing import cast

from det_core.config import ExperimentConfig, LauncherConfig
from det_core.interfaces.launcher import Launcher
from det_core.plugins import registry
from det_core.tracking.secret_files import fill


def open_launcher(config: ExperimentConfig) -> Launcher:
    """The launcher that the config selects.

    Raises:
        PluginError: it cannot be imported.
    """
    block = LauncherConfig.model_validate(fill(config.dump()["launcher"]))
    return cast("Launcher", registry().call_target(registry().find("launcher", block.type), block.options))
