"""Settings that the Core API reads from an experiment config."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from det_core.home import default_storage

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig

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
        dumped: result of `ExperimentConfig.dump`.
        parsed: returns the config itself.
    """

    dumped: Mapping[str, Any]
    parsed: Callable[[], ExperimentConfig]

    @property
    def max_length(self) -> int | None:
        """Return ``searcher.max_length`` without its unit."""
        length: int | Mapping[str, int] | None = self.dumped["searcher"].get("max_length")
        return next(iter(length.values())) if isinstance(length, Mapping) else length


def parse_settings(config: Mapping[str, Any]) -> ExperimentSettings:
    """Validate a config.

    Args:
        config: the config as a JSON-compatible mapping.

    Raises:
        ConfigError: the config is wrong.
    """
    from det_core.config import parse_config

    parsed = parse_config(config)
    return ExperimentSettings(parsed.dump(), lambda: parsed)


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
    return ExperimentSettings(dumped, cache(lambda: parse_settings(dumped).parsed()))
