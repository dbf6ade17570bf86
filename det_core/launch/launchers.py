"""Selection of the launcher by the config."""

from __future__ import annotations

from typing import cast

from det_core.config import ExperimentConfig, LauncherConfig
from det_core.config._claimed_keys import find_claimed_model
from det_core.interfaces.launcher import Launcher
from det_core.plugins import plugin_registry
from det_core.tracking.secret_files import fill_secrets, find_secrets


def open_launcher(config: ExperimentConfig) -> Launcher:
    """Open the launcher that the config selects.

    Raises:
        PluginError: the launcher does not exist or cannot be imported.
        SecretMissing: a secret of its options is not on this host.
    """
    whole, claimed = config.dump(), config.dump_claimed()
    secrets = find_secrets({key: whole[key] for key in {"launcher", *claimed}})
    block = LauncherConfig.model_validate(fill_secrets(whole["launcher"], secrets))
    spec = plugin_registry().find("launcher", block.type)
    model, _ = find_claimed_model(block.type, type(config))
    extra = [model.model_validate(fill_secrets(claimed, secrets))] if model else []
    return cast("Launcher", plugin_registry().call_target(spec, block.options, *extra))
