"""Settings that the Core API reads from an experiment config."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from det_core.home import default_storage
from det_core.interfaces.secrets import SECRET_REFERENCE, Secret, map_text
from det_core.tracking.secret_files import resolve_secrets

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig, Length

_DEFAULTS: Mapping[str, Any] = {
    "name": None,
    "description": None,
    "labels": [],
    "entrypoint": None,
    "hyperparameters": {},
    "searcher": {
        "name": "single",
        "metric": "validation_loss",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
        "max_length": {"epochs": 1},
    },
    "scheduling_unit": 100,
    "records_per_epoch": 0,
    "min_validation_period": {"batches": 0},
    "min_checkpoint_period": {"batches": 0},
    "checkpoint_interval": 900,
    "perform_initial_validation": False,
    "rehearsal": True,
    "checkpoint_policy": "best",
    "checkpoint_code": False,
    "checkpoint_storage": {"type": None, "save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1},
    "stop_on_nan": False,
    "max_restarts": 5,
    "restart_repeated_failures": False,
    "preemption_timeout": None,
    "reproducibility": None,
    "resources": {
        "slots_per_trial": 1,
        "max_slots": None,
        "native_parallel": False,
        "weight": 1.0,
        "priority": None,
        "resource_pool": "",
        "shm_size": None,
        "devices": [],
        "agent_label": None,
        "is_single_node": None,
        "slots": None,
    },
    "environment": {
        "environment_variables": {"cpu": [], "cuda": [], "rocm": []},
        "image": None,
        "force_pull_image": False,
        "registry_auth": None,
        "ports": {},
        "proxy_ports": [],
        "add_capabilities": [],
        "drop_capabilities": [],
        "pod_spec": None,
    },
    "optimizations": {
        "aggregation_frequency": 1,
        "average_aggregated_gradients": True,
        "average_training_metrics": True,
        "gradient_compression": False,
        "mixed_precision": "O0",
        "tensor_fusion_threshold": 64,
        "tensor_fusion_cycle_time": 1,
        "auto_tune_tensor_fusion": False,
        "grad_updates_size_file": None,
    },
    "launcher": {"type": "local", "max_interruptions": None, "slots": 1, "prepare": []},
    "distributed": None,
    "observers": {},
    "profiling": {"enabled": False, "begin_on_batch": 0, "end_after_batch": None, "sync_timings": True},
    "data": {},
    "debug": False,
    "internal": None,
    "bind_mounts": [],
    "data_layer": None,
    "integrations": None,
    "log_policies": None,
    "log_pattern_policies": None,
    "pbs": None,
    "project": "",
    "retention_policy": None,
    "security": None,
    "slurm": None,
    "tensorboard_storage": None,
    "workspace": "",
}
"""Config of a script that gives none, as `ExperimentConfig.dump` returns it.

It is a literal, so that such a script imports neither pydantic nor the models. A test compares it with the models."""


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
    data = resolve_secrets({"data": config["data"]})["data"]

    def fill(text: str) -> str:
        return Secret(resolve_secrets(text)) if SECRET_REFERENCE.search(text) else text

    return ExperimentSettings(
        {**config, "data": map_text(config["data"], fill)},
        cache(lambda: parse_settings({**config, "data": data}).parsed()),
        data,
    )


def default_settings(config: Mapping[str, Any]) -> ExperimentSettings:
    """Return the settings of a script that gives no config of its own.

    Args:
        config: mapping with ``name``, ``entrypoint`` and ``internal``.
    """
    dumped = {
        **_DEFAULTS,
        **{key: config[key] for key in ("name", "entrypoint", "internal")},
        "reproducibility": {"experiment_seed": int(time.time()) % 2**32},
        "checkpoint_storage": _DEFAULTS["checkpoint_storage"] | default_storage(),
    }
    return recorded_settings(dumped)
