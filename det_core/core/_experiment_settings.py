"""Settings that the Core API reads from an experiment config."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.home import default_storage
from det_core.interfaces.secrets import Secret, map_text
from det_core.tracking.secret_files import resolve_secrets

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig, Length

_DEFAULTS = Path(__file__).parents[1] / "config" / "defaults.json"
"""Config of a script that gives none, as `ExperimentConfig.dump` returns it.

``tools/references.py`` writes it, so that such a script imports neither pydantic nor the models."""


@dataclass(frozen=True)
class ExperimentSettings:
    """Valid config.

    Attributes:
        dumped: result of `ExperimentConfig.dump`, in which secrets are masked for ``repr``.
        parsed: returns the config itself.
        data: ``data`` of the config, with its secrets as plain text.
    """

    dumped: Mapping[str, Any]
    parsed: Callable[[], ExperimentConfig]
    data: Mapping[str, Any]

    @property
    def max_length(self) -> Length | None:
        """Return ``searcher.max_length``, or None if the config has none."""
        from det_core.config import Length  # few scripts need it

        given = self.dumped["searcher"].get("max_length")
        return None if given is None else Length.parse(given)


def parse_settings(config: Mapping[str, Any]) -> ExperimentSettings:
    """Validate a config.

    Args:
        config: the config as a JSON-compatible mapping.

    Raises:
        ConfigError: the config is wrong.
    """
    from det_core.config import parse_config

    return settings_of(parse_config(config))


def settings_of(config: ExperimentConfig) -> ExperimentSettings:
    """Return the settings of a config that is parsed."""
    return ExperimentSettings(config.dump(), lambda: config, config.data)


def recorded_settings(config: Mapping[str, Any]) -> ExperimentSettings:
    """Return the settings of a recorded config, which is valid and is parsed when somebody asks for the model.

    The secrets of ``data``, which the trial's code reads, are filled in. Others remain references.

    Args:
        config: result of `ExperimentConfig.dump`, with references to secrets.
    """
    marked = resolve_secrets({"data": config["data"]}, Secret)
    data = map_text(marked["data"], str)
    return ExperimentSettings(
        {**config, **marked},
        cache(lambda: parse_settings({**config, "data": data}).parsed()),
        data,
    )


def default_settings(config: Mapping[str, Any]) -> ExperimentSettings:
    """Return the settings of a script that gives no config of its own.

    Args:
        config: mapping with ``name``, ``entrypoint``, ``searcher`` and ``internal``.
    """
    defaults = json.loads(_DEFAULTS.read_text(encoding="utf-8"))
    dumped = {
        **defaults,
        **{key: config[key] for key in ("name", "entrypoint", "internal")},
        "searcher": defaults["searcher"] | config["searcher"],
        "reproducibility": {"experiment_seed": int(time.time()) % 2**32},
        "checkpoint_storage": defaults["checkpoint_storage"] | default_storage(),
    }
    return recorded_settings(dumped)
