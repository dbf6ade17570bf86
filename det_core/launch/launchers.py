"""Selection of the launcher by the config."""

from __future__ import annotations

from typing import Literal, cast

from det_core.config import ExperimentConfig, parse_config
from det_core.config._claimed_keys import find_claimed_model
from det_core.interfaces.launcher import Launcher
from det_core.plugins import plugin_registry
from det_core.tracking.secret_files import resolve_secrets


def open_launcher(config: ExperimentConfig) -> Launcher:
    """Open the launcher that the config selects.

    Raises:
        PluginError: the launcher does not exist or cannot be imported.
        SecretMissing: a secret of its options is not on this host.
    """
    whole = config.dump()
    blocks = {key: whole[key] for key in ("launcher", *config.dump_claimed())}
    config = parse_config({**whole, **resolve_secrets(blocks)})
    block = config.launcher
    spec = plugin_registry().find("launcher", block.type)
    model, _ = find_claimed_model(block.type, type(config))
    extra = [model.model_validate(config.dump_claimed())] if model else []
    return cast("Launcher", plugin_registry().call_target(spec, block.options, *extra))


def variables_of(config: ExperimentConfig, device: Literal["cpu", "cuda"]) -> dict[str, str]:
    """Return the environment variables of a config for a device, with their secrets.

    Raises:
        SecretMissing: a secret is not on this host.
    """
    block = resolve_secrets({"environment": config.dump()["environment"]})["environment"]
    return type(config.environment).model_validate(block).environment_variables.for_device(device)
